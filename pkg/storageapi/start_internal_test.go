package storageapi

import (
	"context"
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storageapi/v1alpha1"
)

// slow is a storage that takes longer to start than everything else of a server.
type slow struct{ memory.Store }

// Open implements controlplane.Storage.
func (s slow) Open() controlplane.Backend { return slowBackend{s.Store.Open()} }

type slowBackend struct{ controlplane.Backend }

// Start implements controlplane.Backend.
func (b slowBackend) Start(ctx context.Context) error {
	select {
	case <-time.After(200 * time.Millisecond):
		return b.Backend.Start(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// TestSlowStorage: the controller waits for storages that start after it could.
func TestSlowStorage(t *testing.T) {
	t.Parallel()
	l := lend(t, EtcdStorages{Storages: map[string]controlplane.Storage{"slow": slow{}}}, nil)
	s := l.create(t, named("one", func(s *v1alpha1.EtcdStorageSpec) { s.Storage = "slow" }))
	put(t, l.connect(t, s), "a", "1")
}
