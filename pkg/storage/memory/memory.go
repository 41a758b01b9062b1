// Package memory keeps a server's objects in memory: for tests and for control
// planes that are built anew at every start. Nothing is written anywhere.
//
// Reads and watches of old revisions work until they are compacted, as with
// etcd, so what a server keeps grows with its writes until the API server
// compacts.
package memory

import (
	"context"
	"sync"

	"github.com/k3s-io/kine/pkg/drivers"
	driver "github.com/k3s-io/kine/pkg/drivers/memory"
	"github.com/k3s-io/kine/pkg/server"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/kine"
)

// Store is an empty storage in memory. Every Open makes another one, and
// what it holds is gone when it is stopped.
type Store struct{}

var _ controlplane.Storage = Store{}

// Traits implements controlplane.Storage.
func (Store) Traits() controlplane.Traits { return controlplane.Traits{CheapProgress: true} }

// Open implements controlplane.Storage.
func (Store) Open() controlplane.Backend {
	return kine.NewStorage(kine.Driver{Name: "memory", Open: open})
}

func open(ctx context.Context, wg *sync.WaitGroup) (server.Backend, error) {
	_, backend, err := driver.New(ctx, wg, &drivers.Config{})
	return backend, err
}
