//go:build unix

package databases

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

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
		"/registry/.internal/shared/owner": "shop", "/registry/roles/system:a/b%2fc": "k8s:enc:aescbc:v1:key1:\x00",
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

// TestCopies copies from each engine to each other one. What was seen in one is history in the next.
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
