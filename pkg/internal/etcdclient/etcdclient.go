// Package etcdclient makes etcd clients that share the storage behind them.
//
// Every client has its own Watcher and its own Lease keeper, so that closing
// one never ends a watch of another. What they share is the storage: an etcd
// in this process, a translation of the etcd API in this process, or one gRPC
// connection.
package etcdclient

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
)

// keepAliveTimeout is how long a client waits for the first answer to a lease
// keep-alive. Nothing is between client and server, so etcd's own value for
// in-process clients does.
const keepAliveTimeout = time.Second

// Servers are the services of the etcd API that a client calls as functions.
// Without Watch, the caller of InProcess sets the client's Watcher.
type Servers struct {
	KV          pb.KVServer
	Watch       pb.WatchServer
	Lease       pb.LeaseServer
	Maintenance pb.MaintenanceServer
	Cluster     pb.ClusterServer
}

// InProcess returns a client that calls the servers directly, with no socket
// and no encoding in between. It has no Auth service and no endpoints, and its
// Close reports context.Canceled, as etcd's own in-process client does.
func InProcess(s Servers) *clientv3.Client {
	c := clientv3.NewCtxClient(context.Background())
	c.KV = newKV(&inProcess{KVClient: adapter.KvServerToKvClient(s.KV), server: s.KV}, c)
	if s.Watch != nil {
		c.Watcher = clientv3.NewWatchFromWatchClient(adapter.WatchServerToWatchClient(s.Watch), c)
	}
	c.Lease = clientv3.NewLeaseFromLeaseClient(adapter.LeaseServerToLeaseClient(s.Lease), c, keepAliveTimeout)
	c.Maintenance = clientv3.NewMaintenanceFromMaintenanceClient(adapter.MaintenanceServerToMaintenanceClient(s.Maintenance), c)
	c.Cluster = clientv3.NewClusterFromClusterClient(adapter.ClusterServerToClusterClient(s.Cluster), c)
	return c
}

// Pool knows the clients of one storage that are still open, so that the storage
// can close them when it stops. The zero value is ready.
type Pool struct {
	mu     sync.Mutex
	open   map[*clientv3.Client]struct{}
	closed bool
}

// Add puts c into the pool until it is closed. A closed pool closes c at once and
// returns an error.
func (p *Pool) Add(c *clientv3.Client) (*clientv3.Client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = c.Close()
		return nil, errors.New("the storage was stopped")
	}
	if p.open == nil {
		p.open = map[*clientv3.Client]struct{}{}
	}
	p.open[c] = struct{}{}
	context.AfterFunc(c.Ctx(), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.open, c)
	})
	return c, nil
}

// Close closes every client that is still open and returns when their watches
// have ended. It is safe to call more than once.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	open := slices.Collect(maps.Keys(p.open))
	p.mu.Unlock()
	for _, c := range open {
		// The error is the cancelled context of the client itself.
		_ = c.Close()
	}
}
