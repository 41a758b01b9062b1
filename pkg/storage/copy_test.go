package storage_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

// open runs a storage until the test, or what is returned, ends.
func open(t *testing.T, s controlplane.Storage) (*clientv3.Client, func()) {
	t.Helper()
	b := s.Open()
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err := b.Client()
	if err != nil {
		t.Fatal(err)
	}
	stop := func() {
		_ = c.Close()
		if err := b.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return c, stop
}

// fill writes keys into a storage, and returns its newest revision.
func fill(t *testing.T, s controlplane.Storage, content map[string]string) (revision int64) {
	t.Helper()
	c, stop := open(t, s)
	defer stop()
	for key, value := range content {
		r, err := c.Put(t.Context(), key, value)
		if err != nil {
			t.Fatal(err)
		}
		revision = r.Header.Revision
	}
	return revision
}

// content is what a storage has below a prefix, but for the name of its format.
func content(t *testing.T, s controlplane.Storage, prefix string) (all map[string]string, revision int64) {
	t.Helper()
	c, stop := open(t, s)
	defer stop()
	r, err := c.Get(t.Context(), prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	all = map[string]string{}
	for _, kv := range r.Kvs {
		all[string(kv.Key)] = string(kv.Value)
	}
	delete(all, "/registry/.internal/shared/format")
	return all, r.Header.Revision
}

func files(t *testing.T) (sqlite.File, etcd.Embedded) {
	t.Helper()
	dir := t.TempDir()
	return sqlite.File{Path: filepath.Join(dir, "state.db"), UnsafeNoSync: true}, etcd.Embedded{Dir: filepath.Join(dir, "etcd"), UnsafeNoSync: true}
}

// odd has names with all bytes, and values of all sizes.
func odd() map[string]string {
	all := map[string]string{
		"/registry/configmaps/shop/empty":                             "",
		"/registry/secrets/shop/large":                                strings.Repeat("\x00\xff", 3<<18),
		"/registry/.planes/apps/deployments/blue/shop/web":            "k8s\x00binary",
		"/registry/.internal/shared/owner":                            "shop",
		"/registry/rbac.authorization.k8s.io/roles/a/system:role:%2f": "x",
	}
	for i := range 256 {
		all[fmt.Sprintf("/registry/example.com/things/b%c%s", i, string([]byte{byte(i)}))] = fmt.Sprint(i)
	}
	for i := range 500 {
		all[fmt.Sprintf("/registry/example.com/gadgets/shop/%d", i)] = strings.Repeat("v", i*17)
	}
	return all
}

// TestCopy: there and back again, everything is the same, and all that was seen before is history.
func TestCopy(t *testing.T) {
	t.Parallel()
	file, dir := files(t)
	want := odd()
	last := fill(t, file, want)
	var progress storage.Progress
	r, err := storage.Copy(t.Context(), file, dir, storage.Options{Progress: func(p storage.Progress) { progress = p }})
	if err != nil {
		t.Fatal(err)
	}
	got, revision := content(t, dir, "/registry/")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the copy differs (-want +got):\n%.2000s", diff)
	}
	n := int64(len(want))
	if r.Keys != n || r.Written != n || r.Deleted != 0 || !r.Continuous || r.SourceRevision != last || r.Revision <= last {
		t.Errorf("got %+v, want %d keys from revision %d", r, n, last)
	}
	if want := sum(want); r.SHA256 != want {
		t.Errorf("the sum is %x, want %x", r.SHA256, want)
	}
	if want := (storage.Progress{Pass: 2, Keys: n, Total: n}); progress != want {
		t.Errorf("the last progress is %+v, want %+v", progress, want)
	}
	c, stop := open(t, dir)
	for _, old := range []int64{1, last, last + 1, r.Revision - 1} {
		if _, err := c.Get(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithRev(old)); !errors.Is(err, rpctypes.ErrCompacted) {
			t.Errorf("a read at revision %d: %v, want it compacted", old, err)
		}
	}
	stop()

	back := sqlite.File{Path: filepath.Join(t.TempDir(), "back.db"), UnsafeNoSync: true}
	again, err := storage.Copy(t.Context(), dir, back, storage.Options{})
	if err != nil || again.SHA256 != r.SHA256 || again.Revision <= revision {
		t.Errorf("back: %v, %+v, want sum %x above revision %d", err, again, r.SHA256, revision)
	}
	if got, _ := content(t, back, "/registry/"); !maps.Equal(want, got) {
		t.Error("what came back differs")
	}
}

// sum is the sum of the keys and values in their order.
func sum(all map[string]string) (s [32]byte) {
	h := sha256.New()
	for _, key := range sorted(all) {
		for _, b := range []string{key, all[key]} {
			_ = binary.Write(h, binary.BigEndian, uint64(len(b)))
			h.Write([]byte(b))
		}
	}
	h.Sum(s[:0])
	return s
}

// sorted are the keys in their order.
func sorted(all map[string]string) []string { return slices.Sorted(maps.Keys(all)) }

// TestCopyExpiring: what expires has the time that was left, and what has expired is gone.
func TestCopyExpiring(t *testing.T) {
	t.Parallel()
	file, dir := files(t)
	fill(t, file, map[string]string{"/registry/a": "1"})
	c, stop := open(t, file)
	for key, seconds := range map[string]int64{"/registry/events/soon": 1, "/registry/events/later": 1000, "/registry/events/last": 3000} {
		lease, err := c.Grant(t.Context(), seconds)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Put(t.Context(), key, "e", clientv3.WithLease(lease.ID)); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	r, err := storage.Copy(t.Context(), file, dir, storage.Options{})
	if err != nil || r.Keys != 1 || r.Expiring+r.Expired > 3 || r.Expiring < 2 {
		t.Fatalf("%v, %+v", err, r)
	}
	c, _ = open(t, dir)
	for key, most := range map[string]int64{"/registry/events/later": 1000, "/registry/events/last": 3000} {
		got, err := c.Get(t.Context(), key)
		if err != nil || len(got.Kvs) != 1 || got.Kvs[0].Lease == 0 {
			t.Fatalf("%s: %v, %v, want it with a lease", key, got, err)
		}
		life, err := c.TimeToLive(t.Context(), clientv3.LeaseID(got.Kvs[0].Lease))
		if err != nil || life.TTL > most+1 || life.TTL < most/2 {
			t.Errorf("%s: %v, %v, want up to %d s", key, life, err, most)
		}
	}
	if again, err := storage.Copy(t.Context(), file, dir, storage.Options{}); err == nil {
		t.Errorf("into a storage that runs: %+v", again)
	}
}

// TestCopyInterrupted: what is not complete is used by no server, and completed by the same copy alone.
func TestCopyInterrupted(t *testing.T) {
	t.Parallel()
	file, dir := files(t)
	want := odd()
	fill(t, file, want)
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		stop := func(p storage.Progress) {
			if p.Keys > 300 {
				cancel()
			}
		}
		if r, err := storage.Copy(ctx, file, dir, storage.Options{Progress: stop}); !errors.Is(err, context.Canceled) {
			t.Fatalf("interrupted: %v, %+v", err, r)
		}
		cancel()
	}
	s, err := controlplane.New("shop").Storage(dir).Build()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "run the same command again") {
		t.Errorf("a server on it: %v, want it refused", err)
	}
	other := sqlite.File{Path: filepath.Join(t.TempDir(), "other.db")}
	fill(t, other, map[string]string{"/registry/a": "1"})
	if _, err := storage.Copy(t.Context(), other, dir, storage.Options{}); err == nil || !strings.Contains(err.Error(), "finish that one first") {
		t.Errorf("another copy: %v, want it refused", err)
	}
	if _, err := storage.Copy(t.Context(), dir, other, storage.Options{Overwrite: true}); err == nil || !strings.Contains(err.Error(), "not complete") {
		t.Errorf("a copy of it: %v, want it refused", err)
	}
	// What takes its place may have larger revisions than those it was raised to.
	backend := other.OpenAbove(1 << 40)
	if err := errors.Join(backend.Start(t.Context()), backend.Stop(t.Context())); err != nil {
		t.Fatal(err)
	}
	r, err := storage.Copy(t.Context(), other, dir, storage.Options{Overwrite: true})
	if err != nil || r.SourceRevision <= 1<<40 || r.Revision <= r.SourceRevision {
		t.Fatalf("another copy in its place: %v, %+v", err, r)
	}
	r, err = storage.Copy(t.Context(), file, dir, storage.Options{Overwrite: true})
	if err != nil || r.Keys != int64(len(want)) {
		t.Fatalf("continued: %v, %+v", err, r)
	}
	if got, _ := content(t, dir, "/registry/"); !maps.Equal(want, got) {
		t.Error("the copy differs")
	}
}

// TestCopyAgain: a copy whose end nobody saw is told from another one.
func TestCopyAgain(t *testing.T) {
	t.Parallel()
	file, dir := files(t)
	fill(t, file, odd())
	first, err := storage.Copy(t.Context(), file, dir, storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	again, err := storage.Copy(t.Context(), file, dir, storage.Options{})
	if err != nil || again.SHA256 != first.SHA256 || again.Written+again.Deleted > 0 || !again.Continuous || again.Revision > first.Revision+1 {
		t.Errorf("again: %v, %+v, want as %+v, with nothing written", err, again, first)
	}
	fill(t, dir, map[string]string{"/registry/z": "more"})
	if again, err := storage.Copy(t.Context(), file, dir, storage.Options{}); err == nil {
		t.Errorf("after a write: %+v, want it refused", again)
	}
}

// TestCopyOver: what a target has is never lost unless that is asked for.
func TestCopyOver(t *testing.T) {
	t.Parallel()
	file, dir := files(t)
	want := map[string]string{"/registry/a": "1", "/registry/b": "2", "/registry/d": "4"}
	fill(t, file, want)
	fill(t, file, map[string]string{"/other/x": "theirs"})
	before := map[string]string{"/registry/a": "1", "/registry/b": "old", "/registry/c": "gone"}
	last := fill(t, dir, before)
	fill(t, dir, map[string]string{"/other/y": "ours"})
	if _, err := storage.Copy(t.Context(), file, dir, storage.Options{}); err == nil || !strings.Contains(err.Error(), "it has 3 keys below /registry") {
		t.Errorf("into a storage with objects: %v, want it refused", err)
	}
	if got, _ := content(t, dir, "/registry/"); !maps.Equal(before, got) {
		t.Errorf("a copy that was refused left %v", got)
	}
	r, err := storage.Copy(t.Context(), file, dir, storage.Options{Overwrite: true})
	if err != nil || r.Written != 2 || r.Deleted != 1 || r.Revision <= last {
		t.Errorf("overwritten: %v, %+v, want 2 written and 1 deleted", err, r)
	}
	if got, _ := content(t, dir, "/registry/"); !maps.Equal(want, got) {
		t.Errorf("got %v", got)
	}
	if got, _ := content(t, dir, "/other/"); len(got) != 1 || got["/other/y"] != "ours" {
		t.Errorf("beside the prefix is %v, want what was there", got)
	}
}

// TestCopyNothing: a source without keys is a mistake.
func TestCopyNothing(t *testing.T) {
	t.Parallel()
	file, dir := files(t)
	fill(t, file, map[string]string{"/else/a": "1"})
	if _, err := storage.Copy(t.Context(), file, dir, storage.Options{}); err == nil || !strings.Contains(err.Error(), "has no keys below /registry") {
		t.Errorf("%v, want it refused", err)
	}
	if _, err := os.Stat(dir.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the target was touched: %v", err)
	}
}

// TestCopyWhileServed: a server on either storage is noticed, whatever the storage is.
func TestCopyWhileServed(t *testing.T) {
	t.Parallel()
	file, dir := files(t)
	fill(t, file, map[string]string{"/registry/a": "1"})
	fill(t, dir, map[string]string{"/registry/b": "1"})
	open(t, file)
	if _, err := storage.Copy(t.Context(), file, dir, storage.Options{}); err == nil || !strings.Contains(err.Error(), "source: ") {
		t.Errorf("of a storage that runs: %v, want it refused", err)
	}
	if _, err := storage.Copy(t.Context(), dir, file, storage.Options{}); err == nil || !strings.Contains(err.Error(), "target: ") {
		t.Errorf("to a storage that runs: %v, want it refused", err)
	}
	if _, err := storage.Copy(t.Context(), dir, dir, storage.Options{Overwrite: true}); err == nil {
		t.Error("a storage was copied onto itself")
	}
	for _, prefix := range []string{"registry", "/", "/a/", "/a//b"} {
		if _, err := storage.Copy(t.Context(), dir, file, storage.Options{Prefix: prefix}); err == nil || !strings.Contains(err.Error(), "want a path") {
			t.Errorf("prefix %q: %v", prefix, err)
		}
	}
}

// TestCluster: a cluster that runs takes a copy if its revisions are larger, or if that is asked for.
func TestCluster(t *testing.T) {
	t.Parallel()
	file, dir := files(t)
	last := fill(t, file, odd())
	c, address := listen(t, dir)
	cluster := etcd.Cluster{Endpoints: []string{address}}
	if _, err := storage.Copy(t.Context(), file, cluster, storage.Options{}); err == nil || !strings.Contains(err.Error(), "cannot be raised") {
		t.Errorf("into a new cluster: %v, want it refused", err)
	}
	r, err := storage.Copy(t.Context(), file, cluster, storage.Options{AcceptNewRevisions: true})
	if err != nil || r.Continuous || r.Keys != int64(len(odd())) {
		t.Fatalf("with new revisions: %v, %+v", err, r)
	}
	for r.Revision <= last {
		put, err := c.Put(t.Context(), "/other", "x")
		if err != nil {
			t.Fatal(err)
		}
		r.Revision = put.Header.Revision
	}
	if r, err = storage.Copy(t.Context(), file, cluster, storage.Options{Overwrite: true}); err != nil || !r.Continuous || r.Written != 0 {
		t.Errorf("into a cluster with larger revisions: %v, %+v", err, r)
	}
	same := storage.Options{Overwrite: true, AcceptNewRevisions: true}
	if _, err := storage.Copy(t.Context(), cluster, etcd.Cluster{Endpoints: []string{address + "/"}}, same); err == nil ||
		!strings.Contains(err.Error(), "by another name") {
		t.Errorf("onto itself: %v, want it refused", err)
	}
	if _, err := storage.Copy(t.Context(), cluster, sqlite.File{Path: filepath.Join(t.TempDir(), "b.db")}, storage.Options{}); err != nil {
		t.Errorf("after a copy that was refused: %v", err)
	}
}

// listen runs an etcd that others reach. Where somebody else got its address first, it takes another one.
func listen(t *testing.T, dir etcd.Embedded) (c *clientv3.Client, address string) {
	t.Helper()
	for tries := 1; ; tries++ {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address = "http://" + l.Addr().String()
		l.Close()
		dir.Listen = []string{address}
		b := dir.Open()
		err = b.Start(t.Context())
		if err != nil && tries < 5 && strings.Contains(err.Error(), "address already in use") {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := b.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		})
		if c, err = b.Client(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c, address
	}
}
