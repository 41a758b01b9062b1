// Package etcdapi serves the part of etcd's v3 API that API servers use, from a log
// of revisions, to clients in this process: KV, Watch, Lease and Maintenance.
//
// A write crosses three layers: etcd's client, the KV service here, the log. A
// watch is one goroutine that takes events from a bounded queue. It reads events
// that do not fit from the log, so a client that does not read costs nobody else
// anything.
//
// Both compact: the API server by age, as with etcd, and the log itself by size.
package etcdapi

import (
	"context"
	"errors"
	"fmt"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sailplane-dev/sailplane/pkg/internal/etcdclient"
	"github.com/sailplane-dev/sailplane/pkg/internal/metrics"
	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
)

// emulatedVersion is the etcd version in the status: API servers rely on its
// answers to progress requests.
const emulatedVersion = "3.6.0"

// Backend runs a log. It implements controlplane.Backend.
type Backend struct {
	// Name starts every error: "memory", or "sqlite file" and its path.
	Name string
	// Open opens the log. The context bounds the opening only.
	Open func(context.Context, revision.Follower) (revision.Log, error)

	clients etcdclient.Pool

	mu      sync.Mutex
	started bool
	running *running
}

// running is what Start made and Stop must end.
type running struct {
	log     revision.Log
	hub     *hub
	servers etcdclient.Servers
	cancel  context.CancelFunc
	work    sync.WaitGroup
}

// Start implements controlplane.Backend.
func (b *Backend) Start(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.started {
		return fmt.Errorf("%s: started before; open the storage again", b.Name)
	}
	b.started = true
	if ctx.Err() != nil {
		return fmt.Errorf("%s: start: %w", b.Name, context.Cause(ctx))
	}
	if err := b.start(ctx); err != nil {
		return fmt.Errorf("%s: %w", b.Name, err)
	}
	return nil
}

func (b *Backend) start(ctx context.Context) error {
	h := newHub()
	log, err := b.Open(ctx, h.follow)
	if err != nil {
		return err
	}
	current, _, err := log.Current(ctx)
	if err != nil {
		return errors.Join(fmt.Errorf("read the current revision: %w", err), log.Close(ctx))
	}
	expiring, err := log.Expiring(ctx)
	if err != nil {
		return errors.Join(fmt.Errorf("read the keys that expire: %w", err), log.Close(ctx))
	}
	h.begin(log, current, expiring)
	r := &running{log: log, hub: h}
	// Not the start's context: this lives until Stop.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r.cancel = cancel
	r.work.Go(func() { h.notify(work) })
	r.work.Go(func() { h.expiry.run(work, log) })
	r.servers = etcdclient.Servers{
		KV: &kv{log: log}, Lease: &lease{hub: h}, Maintenance: &maintenance{log: log},
		Cluster: &pb.UnimplementedClusterServer{},
	}
	b.running = r
	return nil
}

// Measure returns the metrics of the log.
func (b *Backend) Measure(ctx context.Context) metrics.Storage {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running == nil {
		return metrics.Storage{}
	}
	log := b.running.log
	history, compacted := log.History()
	s := metrics.Storage{History: &history, Compacted: compacted}
	if current, _, err := log.Current(ctx); err == nil {
		lag := b.running.hub.lag(current)
		s.Lag = &lag
	}
	if size, err := log.Size(ctx); err == nil {
		s.File = &size
	}
	return s
}

// Client implements controlplane.Backend.
func (b *Backend) Client() (*clientv3.Client, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running == nil {
		return nil, fmt.Errorf("%s: not running", b.Name)
	}
	c := etcdclient.InProcess(b.running.servers)
	c.Watcher = newWatcher(b.running.hub)
	return b.clients.Add(c)
}

// Defragment implements controlplane.Defragmenting, as far as the log does.
func (b *Backend) Defragment(ctx context.Context) error {
	b.mu.Lock()
	r := b.running
	b.mu.Unlock()
	if r == nil {
		return fmt.Errorf("%s: not running", b.Name)
	}
	if shrinking, ok := r.log.(revision.Shrinking); ok {
		if err := shrinking.Shrink(ctx); err != nil {
			return fmt.Errorf("%s: %w", b.Name, err)
		}
	}
	return nil
}

// Stop implements controlplane.Backend: it ends the watches, then the background
// work, then the log.
func (b *Backend) Stop(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.started = true
	b.clients.Close()
	if b.running == nil {
		return nil
	}
	r := b.running
	b.running = nil
	r.cancel()
	r.work.Wait()
	if err := r.log.Close(ctx); err != nil {
		return fmt.Errorf("%s: stop: %w", b.Name, err)
	}
	return nil
}

// maintenance is etcd's Maintenance service.
type maintenance struct {
	pb.UnimplementedMaintenanceServer
	log revision.Log
}

// Status implements the etcd Maintenance service: the revision, and the size of the
// storage.
func (m *maintenance) Status(ctx context.Context, _ *pb.StatusRequest) (*pb.StatusResponse, error) {
	current, _, err := m.log.Current(ctx)
	if err != nil {
		return nil, rpcError(err)
	}
	size, err := m.log.Size(ctx)
	if err != nil {
		return nil, rpcError(err)
	}
	return &pb.StatusResponse{Header: &pb.ResponseHeader{Revision: current}, DbSize: size, Version: emulatedVersion}, nil
}
