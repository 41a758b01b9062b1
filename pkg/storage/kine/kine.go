// Package kine runs the drivers of kine (https://github.com/k3s-io/kine) as
// storages of a server: kine's own translation of the etcd API, called as
// functions, with no repairs. Each driver is a package below this one, so that
// a program links only those it imports.
//
// These storages do not keep all of the contract in pkg/storage/storagetest.
// docs/storage/kine.md says which part each keeps; the log says so at the start.
package kine

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/k3s-io/kine/pkg/drivers"
	"github.com/k3s-io/kine/pkg/server"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/etcdclient"
	"github.com/sailplane-dev/sailplane/pkg/internal/remote"
)

const (
	// emulatedVersion is the version of etcd in the status: API servers ask it
	// for the progress of watches.
	emulatedVersion = "3.6.0"
	// notifyInterval is how often an idle watch gets its progress: the value
	// that Kubernetes asks of etcd.
	notifyInterval = 5 * time.Second
	// retryCheck is how long a start waits before it asks an unreachable
	// database again.
	retryCheck = 500 * time.Millisecond
)

// Driver holds what differs between the storages of this package.
type Driver struct {
	// Name says what and where the storage is, without credentials. It starts
	// every error and log line.
	Name string
	// Remote is the description, and Schemes are those that its URL may have.
	Remote  Remote
	Schemes []string
	// Limits say in one line which promises of a storage the driver breaks.
	// Every start logs it.
	Limits string
	// New is kine's constructor.
	New drivers.Constructor
	// Config completes the argument of New, which has what all drivers share, with
	// what is in the URL. The password is in it.
	Config func(u *url.URL, config *drivers.Config) error
	// Check connects once, and is tried again for Remote.Timeout; kine would try
	// each second for five minutes. Nil: New fails by itself.
	Check func(context.Context, drivers.Config) error
}

// Open returns a storage of the driver that was not started yet.
func Open(d Driver) controlplane.Backend {
	return &backend{driver: d}
}

// backend implements controlplane.Backend.
type backend struct {
	driver  Driver
	clients etcdclient.Pool

	mu      sync.Mutex
	started bool
	ready   bool // running.servers are set
	running *running
}

// running holds what Start made and Stop must end.
type running struct {
	opening  sync.WaitGroup // the driver's constructor, which may outlive the start
	servers  etcdclient.Servers
	stopWork context.CancelFunc // ends the driver's background work
	closeAll context.CancelFunc // ends the driver's connections
	closed   sync.WaitGroup     // they have ended
}

// Start implements controlplane.Backend.
func (b *backend) Start(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.started {
		return fmt.Errorf("%s: started before; open the storage again", b.driver.Name)
	}
	b.started = true
	quiet()
	u, config, secrets, err := b.driver.Remote.resolve(b.driver.Schemes)
	if err == nil {
		err = b.driver.Config(u, &config)
	}
	if err == nil {
		err = b.check(ctx, config)
	}
	if err == nil {
		err = b.run(ctx, config)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", b.driver.Name, remote.Redact(err, secrets))
	}
	b.ready = true
	// An error, because programs that log little must show it too.
	klog.FromContext(ctx).Error(nil, "The storage does not guarantee everything that API servers rely on",
		"storage", b.driver.Name, "limits", b.driver.Limits)
	return nil
}

// check asks the database until it answers or the timeout is over.
func (b *backend) check(ctx context.Context, config drivers.Config) error {
	if b.driver.Check == nil {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, b.driver.Remote.Timeout())
	defer cancel()
	var last error
	for {
		err := b.driver.Check(limited, config)
		if err == nil || errors.Is(err, ErrRefused) {
			return err
		}
		// A timeout says less than the error before it.
		if last == nil || limited.Err() == nil {
			last = err
		}
		select {
		case <-time.After(retryCheck):
		case <-limited.Done():
			return fmt.Errorf("no answer within %v: %w; check that it runs, and that its address and the certificates are right",
				b.driver.Remote.Timeout(), errors.Join(context.Cause(ctx), last))
		}
	}
}

// run starts the driver. Its constructor does not always heed a context, so if
// the start's ends it is left to fail; Stop waits for it.
func (b *backend) run(ctx context.Context, config drivers.Config) error {
	life, closeAll := context.WithCancel(context.Background())
	work, stopWork := context.WithCancel(life)
	r := &running{closeAll: closeAll, stopWork: stopWork}
	b.running = r
	done := make(chan error, 1)
	r.opening.Go(func() { done <- r.open(life, work, b.driver, &config) })
	select {
	case err := <-done:
		if err != nil {
			closeAll()
		}
		return err
	case <-ctx.Done():
		closeAll()
		return context.Cause(ctx)
	}
}

func (r *running) open(life, work context.Context, d Driver, config *drivers.Config) error {
	_, driver, err := d.New(life, &r.closed, config)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	if err := driver.Start(work); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	bridge := server.New(driver, config.Scheme, notifyInterval, emulatedVersion)
	r.servers = etcdclient.Servers{KV: unstreamed{bridge}, Watch: bridge, Lease: bridge, Maintenance: bridge, Cluster: bridge}
	return nil
}

// Client implements controlplane.Backend.
func (b *backend) Client() (*clientv3.Client, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ready {
		return nil, fmt.Errorf("%s: not running", b.driver.Name)
	}
	return b.clients.Add(etcdclient.InProcess(b.running.servers))
}

// Stop implements controlplane.Backend: clients first, then the driver's
// background work, then its connections.
func (b *backend) Stop(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.started, b.ready = true, false
	b.clients.Close()
	r := b.running
	b.running = nil
	if r == nil {
		return nil
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.stopWork()
		r.closeAll()
		r.opening.Wait()
		r.closed.Wait()
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: stop: waiting for the driver: %w", b.driver.Name, context.Cause(ctx))
	}
}

// unstreamed is kine's KV service without its range streams, which return all keys
// whatever the limit. API servers read pages instead.
type unstreamed struct{ pb.KVServer }

// RangeStream implements the etcd KV service.
func (unstreamed) RangeStream(*pb.RangeRequest, pb.KV_RangeStreamServer) error {
	return status.Error(codes.Unimplemented, "range streams are not supported: read the range in pages")
}
