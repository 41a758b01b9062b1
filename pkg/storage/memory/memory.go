// Package memory keeps a server's objects in memory: for tests and for control
// planes that start empty each time. Nothing is written to disk.
//
// Reads and watches of old revisions work until these are compacted, as with
// etcd: the API server drops history older than some minutes, and the store what
// exceeds [Store.HistoryBytes].
package memory

import (
	"context"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/etcdapi"
	"github.com/sailplane-dev/sailplane/pkg/internal/memorylog"
	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
)

// engine is what metrics and health checks call the storage.
const engine = "memory"

// defaultHistoryBytes is how much history is kept unless told otherwise.
const defaultHistoryBytes = 32 << 20

// Store is an empty storage in memory. Every Open makes another one, and its
// content is gone when it is stopped.
type Store struct {
	// HistoryBytes is how many bytes of old versions and deleted objects are
	// kept at most, for reads and watches of the past. A watch that is further
	// behind lists again. 0: 32 MiB.
	HistoryBytes int64
}

var _ controlplane.Storage = Store{}

// Traits implements controlplane.Storage.
func (Store) Traits() controlplane.Traits {
	return controlplane.Traits{Engine: engine, CheapProgress: true, MaxOps: revision.MaxChanges}
}

// Open implements controlplane.Storage.
func (s Store) Open() controlplane.Backend {
	limit := s.HistoryBytes
	if limit <= 0 {
		limit = defaultHistoryBytes
	}
	return &etcdapi.Backend{
		Name: "memory",
		Open: func(_ context.Context, f revision.Follower) (revision.Log, error) {
			return memorylog.New(f, limit, 1), nil
		},
	}
}
