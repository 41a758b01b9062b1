package storageapi

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/backup"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
	"github.com/sailplane-dev/sailplane/pkg/storageapi/v1alpha1"
)

// backup takes a backup of an EtcdStorage.
func (l *lender) backup(t testing.TB, name string) ([]byte, backup.Info) {
	t.Helper()
	b, err := l.lent.Get().Resource("etcdstorages").Name(name).SubResource("backup").DoRaw(t.Context())
	if err != nil {
		t.Fatalf("take a backup of %s: %v", name, err)
	}
	info, err := backup.Read(t.Context(), bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return b, info
}

// restore restores a backup to an EtcdStorage.
func (l *lender) restore(ctx context.Context, name string, file []byte) (string, error) {
	r := l.lent.Post().Resource("etcdstorages").Name(name).SubResource("restore").Body(file).MaxRetries(0).Do(ctx)
	if err := r.Error(); err != nil {
		return "", err
	}
	b, err := r.Raw()
	return string(b), err
}

// mustRestore restores a backup, and waits until the EtcdStorage is ready.
func (l *lender) mustRestore(t testing.TB, name string, file []byte) {
	t.Helper()
	if answer, err := l.restore(t.Context(), name, file); err != nil || !strings.Contains(answer, `"revision":`) {
		t.Fatalf("restore %s: %s %v", name, answer, err)
	}
	l.until(t, name, metav1.ConditionTrue, v1alpha1.ReasonCertificatesWritten)
}

// revisionOf is the newest revision that a client sees.
func revisionOf(t testing.TB, c *clientv3.Client) int64 {
	t.Helper()
	r, err := c.Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	return r.Header.Revision
}

// TestBackupWhileWriting: a backup has what there was at one revision, and comes back in another EtcdStorage.
func TestBackupWhileWriting(t *testing.T) {
	t.Parallel()
	l := lend(t, EtcdStorages{}, nil)
	a, b := l.connect(t, l.create(t, named("a"))), l.connect(t, l.create(t, named("b")))
	put(t, b, "/registry/of-b", "x")
	value := strings.Repeat("much to read ", 1000)
	for i := range 300 {
		put(t, a, fmt.Sprintf("/registry/%04d", i), value)
	}
	ctx, stop := context.WithCancel(t.Context())
	written := make(chan int, 1)
	go func() { // the same in the first and the last key
		for i := 0; ; i++ {
			n := fmt.Sprint(i)
			if _, err := a.Txn(ctx).Then(clientv3.OpPut("/first", n), clientv3.OpPut("/registry/x", n)).Commit(); err != nil {
				written <- i
				return
			}
		}
	}()
	again(t, "nothing is written", func() error {
		if r, err := a.Get(t.Context(), "/first"); err != nil || len(r.Kvs) == 0 {
			return fmt.Errorf("%+v: %w", r, err)
		}
		return nil
	})
	file, info := l.backup(t, "a")
	stop()
	if n := <-written; n < 2 {
		t.Errorf("%d writes, want many", n)
	}
	if info.EtcdStorage != "a" || info.Keys != 302 || info.Revision > revisionOf(t, a) {
		t.Errorf("the backup says %+v", info)
	}
	want, err := a.Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithRev(info.Revision))
	if err != nil {
		t.Fatal(err)
	}
	l.mustRestore(t, "b", file)
	got := keysOf(t, b)
	if got["/first"] != got["/registry/x"] {
		t.Errorf("the backup has %q and %q, which were written together", got["/first"], got["/registry/x"])
	}
	for _, kv := range want.Kvs {
		if got[string(kv.Key)] != string(kv.Value) {
			t.Errorf("%s differs", kv.Key)
		}
	}
	if len(got) != len(want.Kvs) {
		t.Errorf("%d keys, want %d", len(got), len(want.Kvs))
	}
}

// TestRestoreInPlace: a client whose storage goes back to a backup is told that what it knows is compacted, and finds
// what the backup has. Its revisions go on.
func TestRestoreInPlace(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]controlplane.Storage{
		"memory": memory.Store{}, "SQLite": sqlite.File{Path: filepath.Join(t.TempDir(), "state.db"), UnsafeNoSync: true},
		"etcd": etcd.Embedded{Dir: t.TempDir(), UnsafeNoSync: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			restoreInPlace(t, lend(t, EtcdStorages{}, s))
		})
	}
}

func restoreInPlace(t *testing.T, l *lender) {
	t.Helper()
	c := l.connect(t, l.create(t, named("a")))
	for _, key := range []string{"/registry/changed", "/registry/deleted", "/registry/same"} {
		put(t, c, key, "x")
	}
	for key, ttl := range map[string]int64{"/events/lasting": 3600, "/events/short": 1} {
		lease, err := c.Grant(t.Context(), ttl)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Put(t.Context(), key, "x", clientv3.WithLease(lease.ID)); err != nil {
			t.Fatal(err)
		}
	}
	file, info := l.backup(t, "a")
	if info.Keys != 3 || info.Expiring != 2 {
		t.Fatalf("the backup has %d keys and %d that expire", info.Keys, info.Expiring)
	}
	put(t, c, "/registry/added", "x")
	put(t, c, "/registry/changed", "y")
	if _, err := c.Delete(t.Context(), "/registry/deleted"); err != nil {
		t.Fatal(err)
	}
	same, err := c.Get(t.Context(), "/registry/same")
	if err != nil {
		t.Fatal(err)
	}
	last := same.Header.Revision
	watch := c.Watch(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithRev(last+1), clientv3.WithCreatedNotify())
	if r := <-watch; !r.Created {
		t.Fatalf("the watch does not begin: %+v", r)
	}
	l.mustRestore(t, "a", file)
	if r := <-watch; !errors.Is(r.Err(), rpctypes.ErrCompacted) || r.CompactRevision <= last {
		t.Errorf("an open watch: %+v, want that it is compacted", r)
	}
	want := map[string]string{"/registry/changed": "x", "/registry/deleted": "x", "/registry/same": "x", "/events/lasting": "x"}
	if diff := cmp.Diff(want, keysOf(t, c)); diff != "" {
		t.Errorf("after the restore (-want +got):\n%s", diff)
	}
	list, err := c.Get(t.Context(), "", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range list.Kvs {
		if kv.ModRevision <= last || kv.ModRevision > list.Header.Revision || (kv.Lease != 0) != strings.HasPrefix(string(kv.Key), "/events/") {
			t.Errorf("%s has revision %d of %d and lease %d, where %d was seen", kv.Key, kv.ModRevision, list.Header.Revision, kv.Lease, last)
		}
	}
	old := clientv3.Compare(clientv3.ModRevision("/registry/same"), "=", same.Kvs[0].ModRevision)
	if r, err := c.Txn(t.Context()).If(old).Then(clientv3.OpPut("/registry/same", "y")).Commit(); err != nil || r.Succeeded {
		t.Errorf("a write that expects what was before: %+v, %v, want it refused", r, err)
	}
	watch = c.Watch(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithRev(list.Header.Revision+1))
	put(t, c, "/registry/new", "x")
	if r := <-watch; r.Err() != nil || len(r.Events) != 1 || string(r.Events[0].Kv.Key) != "/registry/new" {
		t.Errorf("a watch from now on: %+v", r)
	}
	own, _ := l.server.Stored()
	if n, err := own.Get(t.Context(), "/registry/.internal/lent/", clientv3.WithPrefix(), clientv3.WithCountOnly()); err != nil || n.Count != 6 {
		t.Errorf("the storage has %+v, %v, want five keys and what is known of them", n, err)
	}
}

// TestRestoreElsewhere: a backup comes back in a new EtcdStorage on another server, whose revisions are smaller. Those
// of its clients go on above all that was seen, also after the backup.
func TestRestoreElsewhere(t *testing.T) {
	t.Parallel()
	lost := lend(t, EtcdStorages{}, nil)
	c := lost.connect(t, lost.create(t, named("a")))
	for i := range 2*copyKeys + 1 {
		put(t, c, fmt.Sprintf("/registry/%04d", i), strings.Repeat("x", i))
	}
	want := keysOf(t, c)
	file, _ := lost.backup(t, "a")
	put(t, c, "/registry/lost", "x")
	last := revisionOf(t, c)

	l := lend(t, EtcdStorages{}, nil)
	s := l.create(t, named("b"))
	c = l.connect(t, s)
	if now := revisionOf(t, c); now >= last {
		t.Fatalf("the new server has revision %d, and the lost one %d", now, last)
	}
	l.mustRestore(t, "b", file)
	if diff := cmp.Diff(want, keysOf(t, c)); diff != "" {
		t.Errorf("on the new server (-want +got):\n%s", diff)
	}
	first, err := c.Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithLimit(1))
	if err != nil || first.Kvs[0].ModRevision <= last {
		t.Errorf("the first key: %+v, %v, and revision %d was seen", first, err, last)
	}
	if r := <-c.Watch(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithRev(last+1)); !errors.Is(r.Err(), rpctypes.ErrCompacted) {
		t.Errorf("a watch from what was lost: %+v, want that it is compacted", r)
	}
	l.follow(t, "b", "said to have what was restored", func(s *v1alpha1.EtcdStorage) bool {
		if s.Status.RestoredAt == nil {
			return false
		}
		var bytes int64
		for key, value := range want {
			bytes += int64(len(key) + len(value))
		}
		return s.Status.Used != nil && *s.Status.Used == v1alpha1.EtcdStorageUsage{Keys: int64(len(want)), Bytes: bytes}
	})
	// And once more, to the storage of before.
	lost.mustRestore(t, "a", file)
	if diff := cmp.Diff(want, keysOf(t, lost.connect(t, lost.until(t, "a", metav1.ConditionTrue, v1alpha1.ReasonCertificatesWritten)))); diff != "" {
		t.Errorf("on the server of before (-want +got):\n%s", diff)
	}
}

// padding is a frame that readers of zstd skip (RFC 8878, 3.1.2).
func padding(size int) []byte {
	frame := binary.LittleEndian.AppendUint32(nil, 0x184D2A50)
	return append(binary.LittleEndian.AppendUint32(frame, uint32(size)), make([]byte, size)...)
}

// TestRestoreRefused: what is no backup of one EtcdStorage, or more than it may have, changes nothing, and
// no client notices.
func TestRestoreRefused(t *testing.T) {
	t.Parallel()
	l := lend(t, EtcdStorages{Max: Limits{Keys: 5, Bytes: 1 << 20, ValueBytes: 1 << 16}}, nil, backup.Endpoint{})
	big := lend(t, EtcdStorages{}, nil)
	b := big.connect(t, big.create(t, named("b")))
	fill := func(keys, size int) []byte {
		for i := range keys {
			put(t, b, fmt.Sprintf("/registry/%d", i), strings.Repeat("x", size))
		}
		file, _ := big.backup(t, "b")
		return file
	}
	good, many := fill(2, 100), fill(6, 10)
	large := fill(1, 1<<16+1)
	whole, err := l.lent.Get().AbsPath(backup.Path).DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(good)
	flipped[len(flipped)/2] ^= 1
	c := l.connect(t, l.create(t, named("a")))
	put(t, c, "/registry/mine", "x")
	watch := c.Watch(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithRev(revisionOf(t, c)+1))
	for name, r := range map[string]struct {
		reason string
		file   []byte
		want   metav1.StatusReason
		says   string
	}{
		"nothing":     {"it is no backup", nil, metav1.StatusReasonBadRequest, "not complete"},
		"text":        {"it is no backup", []byte("no backup"), metav1.StatusReasonBadRequest, "no backup of Sailplane"},
		"flipped":     {"a checksum tells", flipped, metav1.StatusReasonBadRequest, ""},
		"cut off":     {"an upload may end at any byte", good[:len(good)-1], metav1.StatusReasonBadRequest, "not complete"},
		"half":        {"an upload may end at any byte", good[:len(good)/2], metav1.StatusReasonBadRequest, ""},
		"more":        {"it is another file", append(bytes.Clone(good), good...), metav1.StatusReasonBadRequest, "after its end"},
		"whole":       {"it has the objects of the server", whole, metav1.StatusReasonBadRequest, "sailplane restore FILE"},
		"padded":      {"what is skipped takes room, too", append(padding(1<<20+5*keyRoom+fileRoom), good...), metav1.StatusReasonRequestEntityTooLarge, ""},
		"too many":    {"a limit is one", many, metav1.StatusReasonRequestEntityTooLarge, "6 keys or more, and 5 are allowed"},
		"large value": {"its API server could not have written it", large, metav1.StatusReasonRequestEntityTooLarge, "spec.limits"},
	} {
		_, err := l.restore(t.Context(), "a", r.file)
		if apierrors.ReasonForError(err) != r.want || !strings.Contains(err.Error(), r.says) {
			t.Errorf("%s: %s: %v, want %s and %q", name, r.reason, err, r.want, r.says)
		}
	}
	put(t, c, "/registry/more", "x")
	if r := <-watch; r.Err() != nil || len(r.Events) != 1 || string(r.Events[0].Kv.Key) != "/registry/more" {
		t.Errorf("the watch of before: %+v", r)
	}
	if diff := cmp.Diff(map[string]string{"/registry/mine": "x", "/registry/more": "x"}, keysOf(t, c)); diff != "" {
		t.Errorf("after what was refused (-want +got):\n%s", diff)
	}
	_, err = backup.Restore(t.Context(), bytes.NewReader(good), memory.Store{}, backup.Options{Overwrite: true})
	if err == nil || !strings.Contains(err.Error(), "sailplane tenants restore b FILE") {
		t.Errorf("a whole storage from a backup of one EtcdStorage: %v, want it refused", err)
	}
	if err := mayRestore(&v1alpha1.EtcdStorage{Status: v1alpha1.EtcdStorageStatus{Conditions: []metav1.Condition{
		moving(&v1alpha1.EtcdStorage{}, "archive", 0),
	}}}); !apierrors.IsConflict(err) {
		t.Errorf("while it moves: %v, want a conflict", err)
	}
}

// TestWhoMayRestore: backups are for those who may have them, and a sub-resource takes one method.
func TestWhoMayRestore(t *testing.T) {
	t.Parallel()
	allowed := map[string]string{"reader": "get etcdstorages/", "saver": "get etcdstorages/backup", "restorer": "create etcdstorages/restore"}
	l := lend(t, EtcdStorages{}, nil, authz.Func("test", func(_ context.Context, a authz.Attributes) (authz.Decision, string, error) {
		if allowed[a.GetUser().GetName()] == a.GetVerb()+" "+a.GetResource()+"/"+a.GetSubresource() {
			return authz.Allow, "", nil
		}
		return authz.NoOpinion, "", nil
	}))
	l.create(t, named("a"))
	ask := func(user, method, subresource string) int {
		config := l.server.ClientConfig()
		config.Impersonate = rest.ImpersonationConfig{UserName: user}
		c, err := clientOf(config)
		if err != nil {
			t.Fatal(err)
		}
		code := 0
		c.Verb(method).Resource("etcdstorages").Name("a").SubResource(strings.Split(subresource, "/")...).MaxRetries(0).Do(t.Context()).StatusCode(&code)
		return code
	}
	for _, c := range []struct {
		user, method, subresource string
		want                      int
	}{
		{"reader", http.MethodGet, "backup", http.StatusForbidden},
		{"reader", http.MethodPost, "restore", http.StatusForbidden},
		{"saver", http.MethodGet, "backup", http.StatusOK},
		{"saver", http.MethodGet, "backup/x", http.StatusNotFound},
		{"saver", http.MethodPost, "restore", http.StatusForbidden},
		{"saver", http.MethodGet, "restore", http.StatusForbidden},
		{"restorer", http.MethodGet, "backup", http.StatusForbidden},
		{"restorer", http.MethodPost, "restore", http.StatusBadRequest}, // it sends none
		{"", http.MethodPost, "backup", http.StatusMethodNotAllowed},
		{"", http.MethodPut, "restore", http.StatusMethodNotAllowed},
	} {
		if got := ask(c.user, c.method, c.subresource); got != c.want {
			t.Errorf("%s %s as %q: %d, want %d", c.method, c.subresource, c.user, got, c.want)
		}
	}
}

// TestWholeBackup: a backup of a server has what it lends, and says how much that is. From a server that was made
// of it, clients read all of it again, with newer revisions.
func TestWholeBackup(t *testing.T) {
	t.Parallel()
	file := func() sqlite.File {
		return sqlite.File{Path: filepath.Join(t.TempDir(), "state.db"), UnsafeNoSync: true}
	}
	l := lend(t, EtcdStorages{}, file(), backup.Endpoint{})
	a, b := l.connect(t, l.create(t, named("a"))), l.connect(t, l.create(t, named("b")))
	put(t, a, "/registry/x", "k8s:enc:aescbc:v1:key1:of another server")
	put(t, b, "/registry/x", "b")
	put(t, b, "/registry/y", "b")
	want := []map[string]string{keysOf(t, a), keysOf(t, b)}
	one, _ := l.backup(t, "b")
	l.mustRestore(t, "b", one) // there is something to know of its past
	last := []int64{revisionOf(t, a), revisionOf(t, b)}
	whole, err := l.lent.Get().AbsPath(backup.Path).DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l.stop()
	restored := file()
	r, err := backup.Restore(t.Context(), bytes.NewReader(whole), restored, backup.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Info.Lent.Objects != 3 || r.Info.Lent.Bytes == 0 || len(r.Info.Encrypted) != 0 ||
		r.Info.Resources["etcdstorages.storage.sailplane.dev"].Objects != 2 {
		t.Errorf("the backup says %+v", r.Info)
	}
	l = lend(t, EtcdStorages{}, restored)
	for i, name := range []string{"a", "b"} {
		// The certificate is that of before; the endpoint and the authority may be others.
		s := l.follow(t, name, "at its new endpoint", func(s *v1alpha1.EtcdStorage) bool {
			return s.Status.Endpoint == l.endpoint(t)
		})
		c := l.connect(t, s)
		if diff := cmp.Diff(want[i], keysOf(t, c)); diff != "" {
			t.Errorf("%s after the restore (-want +got):\n%s", name, diff)
		}
		first, err := c.Get(t.Context(), "/registry/x")
		if err != nil || first.Header.Revision <= last[i] {
			t.Errorf("%s goes on at %+v, %v, where revision %d was seen", name, first, err, last[i])
		}
		if r := <-c.Watch(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithRev(last[i])); !errors.Is(r.Err(), rpctypes.ErrCompacted) {
			t.Errorf("%s watches from before: %+v, want that it is compacted", name, r)
		}
	}
}
