package storageapi

import (
	"context"
	"crypto/tls"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/sailplane-dev/sailplane/pkg/internal/keys"
	"github.com/sailplane-dev/sailplane/pkg/internal/metrics"
	"github.com/sailplane-dev/sailplane/pkg/storageapi/v1alpha1"
)

// store is a storage that has data of tenants.
type store struct {
	engine string
	client *clientv3.Client
	open   func() (*clientv3.Client, error)
	prefix string
}

// root starts the keys of a tenant.
func (s *store) root(name string) string {
	root, _ := keys.Space{Prefix: s.prefix}.Lent(name)
	return root
}

// state is the key of what is known of a tenant's past.
func (s *store) state(name string) string {
	_, state := keys.Space{Prefix: s.prefix}.Lent(name)
	return state
}

// tenants knows who may connect, and who does.
type tenants struct {
	life    context.Context //nolint:containedctx // of what runs for tenants
	max     Limits
	running sync.WaitGroup

	mu        sync.Mutex
	stores    map[string]*store
	lent      map[string]*v1alpha1.EtcdStorage // by name; not those that are deleted
	connected map[string]*tenant
	ended     bool
}

// start lets tenants connect.
func (ts *tenants) start(life context.Context, stores map[string]*store) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.life, ts.stores = life, stores
}

// store returns the storage of a name, or nil.
func (ts *tenants) store(name string) *store {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.stores[name]
}

// put takes in what an EtcdStorage is now.
func (ts *tenants) put(s *v1alpha1.EtcdStorage) {
	if s.DeletionTimestamp != nil {
		ts.remove(s.Name)
		return
	}
	ts.mu.Lock()
	old := ts.lent[s.Name]
	ts.lent[s.Name] = s
	t := ts.connected[s.Name]
	ts.mu.Unlock()
	if t == nil {
		return
	}
	if old != nil && (old.UID != s.UID || old.Status.Storage != s.Status.Storage || !old.Status.RestoredAt.Equal(s.Status.RestoredAt)) ||
		isClosed(s) {
		ts.cut(t)
		return
	}
	t.limit(ts.max.of(s.Spec.Limits))
}

// remove ends the connections of a tenant that is to be there no more.
func (ts *tenants) remove(name string) {
	ts.mu.Lock()
	delete(ts.lent, name)
	t := ts.connected[name]
	ts.mu.Unlock()
	if t != nil {
		ts.cut(t)
	}
}

// enter takes a connection of a tenant in. It returns nil if there is no such tenant, or
// it has too many.
func (ts *tenants) enter(c *tls.Conn, id tenantID) *connection {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	s := ts.lent[id.name]
	if s == nil || string(s.UID) != id.uid || isClosed(s) || ts.ended {
		return nil
	}
	at := ts.stores[s.Status.Storage] // there is none before the controller has chosen one
	if at == nil {
		return nil
	}
	t := ts.connected[id.name]
	if t == nil {
		t = ts.begin(id, s, at)
	}
	of := &connection{
		Conn: c, tenant: t, leave: ts.leave, ends: c.ConnectionState().PeerCertificates[0].NotAfter, closed: make(chan struct{}),
		held: map[*held]struct{}{},
	}
	t.ask(time.Now(), asksPerConnection)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gone || len(t.connections) >= maxConnections {
		return nil
	}
	t.connections[of] = struct{}{}
	if t.idle != nil {
		t.idle.Stop()
		t.idle = nil
	}
	return of
}

// begin makes what a connected tenant has. The caller holds the lock.
func (ts *tenants) begin(id tenantID, s *v1alpha1.EtcdStorage, at *store) *tenant {
	life, end := context.WithCancel(ts.life)
	t := &tenant{
		id: id, at: at, uses: &count{client: at.client, root: at.root(id.name)}, end: end, connections: map[*connection]struct{}{},
		bytes: rate.NewLimiter(readBytes, readBytes), turns: semaphore.NewWeighted(maxTurns), leases: leases{of: id},
	}
	t.limit(ts.max.of(s.Spec.Limits))
	ts.connected[id.name] = t
	ts.running.Go(func() { t.uses.run(life) })
	return t
}

// leave is called when a connection has ended.
func (ts *tenants) leave(c *connection) {
	t := c.tenant
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.connections, c)
	if len(t.connections) == 0 && !t.gone {
		t.idle = time.AfterFunc(linger, func() { ts.forget(t) })
	}
}

// forget ends what runs for a tenant that has not come back.
func (ts *tenants) forget(t *tenant) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.connections) > 0 {
		return
	}
	t.gone = true
	t.end()
	if ts.connected[t.id.name] == t {
		delete(ts.connected, t.id.name)
	}
}

// cut ends the connections of a tenant, and what runs for it.
func (ts *tenants) cut(t *tenant) {
	t.mu.Lock()
	t.gone = true
	open := make([]*connection, 0, len(t.connections))
	for c := range t.connections {
		open = append(open, c)
	}
	if t.idle != nil {
		t.idle.Stop()
	}
	t.mu.Unlock()
	t.end()
	for _, c := range open {
		c.cut()
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.connected[t.id.name] == t {
		delete(ts.connected, t.id.name)
	}
}

// stop ends everything that runs for tenants, and waits for it.
func (ts *tenants) stop() {
	ts.mu.Lock()
	ts.ended = true
	var all []*tenant
	for _, t := range ts.connected {
		all = append(all, t)
	}
	ts.mu.Unlock()
	for _, t := range all {
		ts.cut(t)
	}
	ts.running.Wait()
}

// used is what connected tenants have in the storage, by name, where their status does
// not say so.
func (ts *tenants) used() map[string]usage {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	all := map[string]usage{}
	for name, t := range ts.connected {
		s := ts.lent[name]
		if u, known := t.uses.last(); known && s != nil && (s.Status.Used == nil || u != usage{s.Status.Used.Keys, s.Status.Used.Bytes}) {
			all[name] = u
		}
	}
	return all
}

// report is what all tenants have, as far as it is known here.
func (ts *tenants) report() []metrics.Tenant {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	all := make([]metrics.Tenant, 0, len(ts.lent))
	for name, s := range ts.lent {
		one := metrics.Tenant{Name: name}
		if u := s.Status.Used; u != nil {
			one.Keys, one.Bytes = u.Keys, u.Bytes
		}
		if t := ts.connected[name]; t != nil {
			one.Connected = true
			if u, known := t.uses.last(); known {
				one.Keys, one.Bytes = u.keys, u.bytes
			}
		}
		l := ts.max.of(s.Spec.Limits)
		one.Full = max(float64(one.Keys)/float64(l.Keys), float64(one.Bytes)/float64(l.Bytes))
		all = append(all, one)
	}
	return all
}
