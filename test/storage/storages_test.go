package storage

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

// patience bounds every wait of a test. It is only reached by a failure.
const patience = 2 * time.Minute

// storages are those of the library, each new in a directory.
func storages() map[string]func(dir string) controlplane.Storage {
	return map[string]func(dir string) controlplane.Storage{
		"memory": func(string) controlplane.Storage { return memory.Store{} },
		"sqlite": func(dir string) controlplane.Storage {
			return sqlite.File{Path: filepath.Join(dir, "state.db"), UnsafeNoSync: true}
		},
		"etcd": func(dir string) controlplane.Storage {
			return etcd.Embedded{Dir: filepath.Join(dir, "data"), UnsafeNoSync: true}
		},
	}
}

// start runs a storage until the test ends, and returns a client of it.
func start(t *testing.T, s controlplane.Storage) *kubernetes.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	b := s.Open()
	if err := b.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := b.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	c, err := b.Client()
	if err != nil {
		t.Fatal(err)
	}
	k := &kubernetes.Client{Client: c}
	k.Kubernetes = k
	return k
}

// raise writes a key that no test looks at, so that the revision grows.
func raise(ctx context.Context, t *testing.T, c *clientv3.Client) int64 {
	t.Helper()
	k := &kubernetes.Client{Client: c}
	r, err := k.OptimisticPut(ctx, fmt.Sprintf("/raised/%d", time.Now().UnixNano()), []byte("1"), 0, kubernetes.PutOptions{})
	if err != nil || !r.Succeeded {
		t.Fatalf("raise the revision: %+v, %v", r, err)
	}
	return r.Revision
}
