//go:build unix

package databases

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sailplane-dev/sailplane/pkg/backup"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

// places returns, for each engine, what makes an empty storage. Those whose database is not installed
// are left out, which the test says.
func places(t *testing.T) map[string]func() controlplane.Storage {
	t.Helper()
	dir, n := t.TempDir(), atomic.Int64{}
	all := map[string]func() controlplane.Storage{
		"sqlite": func() controlplane.Storage {
			return sqlite.File{Path: filepath.Join(dir, fmt.Sprintf("%d.db", n.Add(1))), UnsafeNoSync: true}
		},
		"etcd": func() controlplane.Storage {
			return etcd.Embedded{Dir: filepath.Join(dir, fmt.Sprintf("etcd-%d", n.Add(1))), UnsafeNoSync: true}
		},
	}
	for _, e := range engines() {
		server := e.start(t)
		all[e.name] = func() controlplane.Storage { return e.storage(server.URL(fmt.Sprintf("copy_%d", n.Add(1)))) }
	}
	return all
}

// opened calls something with a client of a storage that runs.
func opened(t *testing.T, s controlplane.Storage, something func(*clientv3.Client)) {
	t.Helper()
	b := s.Open()
	defer func() {
		if err := b.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err := b.Client()
	if err != nil {
		t.Fatal(err)
	}
	something(c)
	_ = c.Close()
}

// written are objects of all sizes, with every byte in a name, and in values.
func written(t *testing.T, s controlplane.Storage) map[string]string {
	t.Helper()
	all := map[string]string{
		"/registry/configmaps/shop/empty": "", "/registry/configmaps/shop/large": strings.Repeat("\x00\xff", 3<<18),
		"/registry/.internal/shared/owner": "shop", "/registry/roles/system:a/b%2fc": "\x00k8s:enc:",
	}
	for i := 1; i < 256; i++ {
		all["/registry/things/a/b"+string([]byte{byte(i)})+"c"] = string([]byte{byte(i), 0})
	}
	for i := range 300 {
		all[fmt.Sprintf("/registry/example.com/gadgets/shop/%03d", i)] = strings.Repeat("v", i*11)
	}
	opened(t, s, func(c *clientv3.Client) {
		for key, value := range all {
			if _, err := c.Put(t.Context(), key, value); err != nil {
				t.Fatal(err)
			}
		}
	})
	return all
}

// TestCopies copies from each engine to each other one, and restores a backup there. What was seen in one is history
// in the next.
func TestCopies(t *testing.T) {
	t.Parallel()
	empty := places(t)
	for from, source := range empty {
		first := source()
		want := written(t, first)
		for to, target := range empty {
			if from == to {
				continue
			}
			second := target()
			r, err := storage.Copy(t.Context(), first, second, storage.Options{})
			if err != nil {
				t.Errorf("%s to %s: %v", from, to, err)
				continue
			}
			if r.Keys != int64(len(want)) || r.Written != r.Keys || !r.Continuous || r.Revision <= r.SourceRevision {
				t.Errorf("%s to %s: %+v, want %d keys", from, to, r, len(want))
			}
			restored(t, fmt.Sprintf("%s to %s", from, to), first, target(), r.SHA256)
			opened(t, second, func(c *clientv3.Client) {
				got := map[string]string{}
				all, err := c.Get(t.Context(), "/registry/", clientv3.WithPrefix())
				if err != nil {
					t.Fatal(err)
				}
				for _, kv := range all.Kvs {
					got[string(kv.Key)] = string(kv.Value)
					if kv.ModRevision <= r.SourceRevision {
						t.Errorf("%s to %s: %q has revision %d, which clients of the source have seen", from, to, kv.Key, kv.ModRevision)
					}
				}
				delete(got, "/registry/.internal/shared/format")
				if !maps.Equal(got, want) {
					t.Errorf("%s to %s: the copy differs", from, to)
				}
				if w := <-c.Watch(t.Context(), "/", clientv3.WithPrefix(), clientv3.WithRev(r.SourceRevision)); w.CompactRevision == 0 {
					t.Errorf("%s to %s: a watch from revision %d: %+v, want it refused", from, to, r.SourceRevision, w)
				}
			})
		}
	}
}

// restored restores a backup of one storage to another one, which has the same then.
func restored(t *testing.T, name string, from, to controlplane.Storage, want [32]byte) {
	t.Helper()
	var saved bytes.Buffer
	info, err := backup.WriteStored(t.Context(), from, "", &saved)
	if err != nil || info.SHA256 != hex.EncodeToString(want[:]) {
		t.Errorf("%s: backup: %v, %+v, want the sum %x", name, err, info, want)
		return
	}
	r, err := backup.Restore(t.Context(), bytes.NewReader(saved.Bytes()), to, backup.Options{})
	if err != nil || !r.Continuous || r.Written != info.Keys {
		t.Errorf("%s: restore: %v, %+v", name, err, r)
		return
	}
	again, err := backup.WriteStored(t.Context(), to, "", io.Discard)
	if err != nil || again.SHA256 != info.SHA256 || again.Revision <= info.Revision {
		t.Errorf("%s: what was restored: %v, %+v, want the sum %s", name, err, again, info.SHA256)
	}
}

// TestManyObjects copies 100,000 objects from a file to a database, and restores a backup of that to a file.
func TestManyObjects(t *testing.T) {
	t.Parallel()
	const n = 100_000
	empty := places(t)
	first, second := empty["sqlite"](), empty["postgres"]()
	opened(t, first, func(c *clientv3.Client) {
		for i := 0; i < n; i += 100 {
			var ops []clientv3.Op
			for k := i; k < i+100; k++ {
				ops = append(ops, clientv3.OpPut(fmt.Sprintf("/registry/configmaps/shop/c-%06d", k), strings.Repeat(fmt.Sprint(k), 100)))
			}
			if _, err := c.Txn(t.Context()).Then(ops...).Commit(); err != nil {
				t.Fatal(err)
			}
		}
	})
	var last storage.Progress
	r, err := storage.Copy(t.Context(), first, second, storage.Options{Progress: func(p storage.Progress) { last = p }})
	if err != nil || r.Keys != n || r.Written != n || last.Keys != n || last.Total != n {
		t.Fatalf("%v, %+v, after %+v", err, r, last)
	}
	restored(t, "a backup of it", second, empty["sqlite"](), r.SHA256)
}
