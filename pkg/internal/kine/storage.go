// Package kine turns a kine driver into a storage that clients of the etcd API
// reach by function calls: no socket, no encoding.
//
// Reads and transactions go through kine's own translation of the etcd API
// (kine/pkg/server), on a backend that is guarded where the drivers are looser
// than etcd. Watches do not go through kine's watch server. It hands out the
// byte slices the driver keeps, the in-memory driver repeats events after every
// compaction, and progress notifications are not ordered with events: the
// server looks whether a watch is idle, not whether it was handed everything up
// to the revision it announces, so that a watch cache could miss objects for
// good. With SQL it may also wait for the next write, or a second, before it
// answers a progress request. Instead one feed per storage reads every event
// once and in order, hands each to the watches it concerns, and so knows what
// was delivered when it announces progress.
//
// Who compacts: the API server, as with etcd. Drivers keep all history until a
// client sends a compaction; kine's own compactor stays off.
package kine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/k3s-io/kine/pkg/server"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sailplane-dev/sailplane/pkg/internal/etcdclient"
)

// emulatedVersion is the etcd version the storage claims in its status: one
// whose watch progress requests API servers rely on.
const emulatedVersion = "3.6.0"

// lastQuery is how long a stop lets the driver finish its last query, which
// was cancelled, before it closes the connections under it.
const lastQuery = 2 * time.Second

// Driver is one kine driver with what a storage must know about it.
type Driver struct {
	// Name starts every error, for example "sqlite".
	Name string
	// Open connects. The context lives until the storage is stopped; when it
	// ends the backend closes its connections, and the wait group tells when
	// that is done.
	Open func(context.Context, *sync.WaitGroup) (server.Backend, error)
	// Compact drops the history below a revision, of which the current one is
	// given too. Empty: the backend's own compaction.
	Compact func(ctx context.Context, revision, current int64) error
	// FeedEnds says that the backend closes its watch channels by itself when
	// the context given to its Start ends, after its last query.
	FeedEnds bool
}

// Storage runs a driver. It implements controlplane.Backend.
type Storage struct {
	driver  Driver
	clients etcdclient.Pool

	mu      sync.Mutex
	started bool
	running *running
}

// running is what Start made and Stop must end, in reverse.
type running struct {
	servers  etcdclient.Servers
	feed     *feed
	stopWork context.CancelFunc // ends the driver's background work
	stopFeed context.CancelFunc // ends the reading of events
	closeAll context.CancelFunc // closes the driver's connections
	closed   *sync.WaitGroup
}

// NewStorage returns a storage that was not started yet.
func NewStorage(d Driver) *Storage { return &Storage{driver: d} }

// Start implements controlplane.Backend.
func (s *Storage) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		return fmt.Errorf("%s: started before; open the datastore again", s.driver.Name)
	}
	s.started = true
	quiet()

	life, closeAll := context.WithCancel(context.Background())
	// A driver may retry a connection for minutes: the start's context ends it.
	abandon := context.AfterFunc(ctx, closeAll)
	r := &running{closeAll: closeAll, closed: &sync.WaitGroup{}}
	err := r.start(ctx, life, s.driver)
	if !abandon() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.driver.Name, errors.Join(err, r.stop(context.Background(), s.driver)))
	}
	s.running = r
	return nil
}

func (r *running) start(ctx, life context.Context, d Driver) error {
	backend, err := d.Open(life, r.closed)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	work, stopWork := context.WithCancel(life)
	r.stopWork = stopWork
	if err := backend.Start(work); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	current, err := backend.CurrentRevision(ctx)
	if err != nil {
		return fmt.Errorf("read the current revision: %w", err)
	}
	guarded := &guarded{Backend: backend, compact: d.Compact}
	guarded.acknowledge(current)
	r.feed = newFeed(guarded, current)
	guarded.compacted, guarded.reach = r.feed.compact, r.feed.reach
	reading, stopFeed := context.WithCancel(context.WithoutCancel(life))
	r.stopFeed = stopFeed
	r.feed.start(reading)

	bridge := server.New(guarded, "", notifyInterval, emulatedVersion)
	r.servers = etcdclient.Servers{KV: bridge, Watch: r.feed, Lease: bridge, Maintenance: bridge, Cluster: bridge}
	return nil
}

// Client implements controlplane.Backend.
func (s *Storage) Client() (*clientv3.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return nil, fmt.Errorf("%s: not running", s.driver.Name)
	}
	return s.clients.Add(etcdclient.InProcess(s.running.servers))
}

// Stop implements controlplane.Backend.
func (s *Storage) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started = true
	s.clients.Close()
	if s.running == nil {
		return nil
	}
	r := s.running
	s.running = nil
	if err := r.stop(ctx, s.driver); err != nil {
		return fmt.Errorf("%s: %w", s.driver.Name, err)
	}
	return nil
}

// stop ends everything in the order in which nothing waits for what is gone:
// watches, the driver's background work, the feed, connections.
func (r *running) stop(ctx context.Context, d Driver) error {
	var errs []error
	if r.feed != nil {
		errs = append(errs, wait(ctx, "watches", r.feed.endStreams))
	}
	if r.stopWork != nil {
		r.stopWork()
	}
	if r.feed != nil {
		if d.FeedEnds {
			// Running out of patience is no error: what the feed still
			// waits for ends with its context below.
			patient, cancel := context.WithTimeout(ctx, lastQuery)
			_ = wait(patient, "the last query", r.feed.reader.Wait)
			cancel()
		}
		r.stopFeed()
		errs = append(errs, wait(ctx, "the feed of events", r.feed.wait))
	}
	r.closeAll()
	errs = append(errs, wait(ctx, "connections", r.closed.Wait))
	return errors.Join(errs...)
}

// wait runs f, which blocks, for as long as the context allows.
func wait(ctx context.Context, what string, f func()) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop: waiting for %s: %w", what, context.Cause(ctx))
	}
}
