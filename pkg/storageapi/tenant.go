package storageapi

import (
	"context"
	"hash/fnv"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sailplane-dev/sailplane/pkg/internal/etcdserve"
	"github.com/sailplane-dev/sailplane/pkg/internal/metrics"
)

const (
	// maxConnections and maxCalls are how many connections and calls, streams of watches among them, one
	// tenant may have at the same time: a kube-apiserver has a connection for each resource.
	maxConnections, maxCalls = 256, 512
	// maxTurns is what one tenant may read at a time, where a key has one turn and a range has rangeTurns. A
	// turn lasts until the client has taken the answer.
	maxTurns, rangeTurns = 32, 16
	// readsPerWrite is how many reads a tenant has for each write per second, readBytes how many bytes it
	// may read in a second, and before it has to wait, and maxAnswer how many in one answer.
	readsPerWrite        = 5
	readBytes, maxAnswer = 64 << 20, 64 << 20
	// What takes as long as one small call: to decode so many operations of a transaction, or bytes. A
	// connection takes as long as so many calls.
	operationsPerAsk, bytesPerAsk = 16, 16 << 10
	asksPerConnection             = 10
	// patience is how long a call waits for its turn, before it is refused, and untaken how old an answer is
	// that its client seems not to take: maxAnswer takes as long on 2 Mbit/s.
	patience, untaken = 10 * time.Second, 5 * time.Minute
	// deaf is how long a tenant is not listened to at most, after it has asked for too much at once.
	deaf = time.Minute
	// linger is how long what is known of a tenant is kept after its last connection.
	linger = time.Minute
)

// tenant is an API server with a storage on this one, as long as it is connected. It is the
// keeper of its view.
type tenant struct {
	id   tenantID
	at   *store
	uses *count

	writes, reads, bytes, asks *rate.Limiter
	turns                      *semaphore.Weighted
	leases                     leases
	end                        func()       // what runs for it
	listens                    atomic.Int64 // from then on, in nanoseconds since 1970
	heard                      atomic.Int64 // bytes

	viewing sync.Mutex
	view    *etcdserve.View // once the past is known

	mu          sync.Mutex
	limits      Limits
	connections map[*connection]struct{}
	calls       int
	watches     int
	compacted   int64
	gone        bool
	idle        *time.Timer // after the last connection
}

var _ etcdserve.Keeper = (*tenant)(nil)

// limit has the tenant keep other limits.
func (t *tenant) limit(l Limits) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.limits == l {
		return
	}
	t.limits = l
	pace := func(of **rate.Limiter, perSecond int) {
		if *of == nil {
			*of = rate.NewLimiter(rate.Limit(perSecond), 2*perSecond)
			return
		}
		(*of).SetLimit(rate.Limit(perSecond))
		(*of).SetBurst(2 * perSecond)
	}
	pace(&t.writes, l.WritesPerSecond)
	pace(&t.reads, readsPerWrite*l.WritesPerSecond)
	pace(&t.asks, (readsPerWrite+1)*l.WritesPerSecond)
}

// ask counts what takes as long as n small calls, whatever becomes of it: also a refusal takes time from others. Its
// connections are not listened to before as many may have come.
func (t *tenant) ask(now time.Time, n int) {
	turn := t.asks.ReserveN(now, min(n, t.asks.Burst()))
	wait := turn.DelayFrom(now)
	if wait > deaf {
		turn.CancelAt(now)
	}
	if wait > 0 {
		t.listens.Store(now.Add(min(wait, deaf)).UnixNano())
	}
}

// hear counts bytes that came from the tenant.
func (t *tenant) hear(now time.Time, n int) {
	all := t.heard.Add(int64(n))
	if asks := all/bytesPerAsk - (all-int64(n))/bytesPerAsk; asks > 0 {
		t.ask(now, int(asks))
	}
}

// ahead is how long to wait before the tenant is listened to.
func (t *tenant) ahead(now time.Time) time.Duration {
	return time.Duration(t.listens.Load() - now.UnixNano())
}

// sees returns what the tenant may see. Its past is read once.
func (t *tenant) sees(ctx context.Context) (*etcdserve.View, error) {
	t.viewing.Lock()
	defer t.viewing.Unlock()
	if t.view != nil {
		return t.view, nil
	}
	p, err := t.at.past(ctx, t.id.name)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	if p.Restoring {
		return nil, status.Error(codes.Unavailable, "the data is not complete: a restore of it was interrupted")
	}
	number := fnv.New64a()
	_, _ = number.Write([]byte(t.id.uid)) // which never fails
	t.mu.Lock()
	t.compacted = max(t.compacted, p.Since)
	t.mu.Unlock()
	t.view = &etcdserve.View{
		Client: t.at.client, Open: t.at.open, Root: t.at.root(t.id.name), Offset: p.Offset, ID: number.Sum64(), Keeper: t,
		MaxAnswer: maxAnswer,
	}
	return t.view, nil
}

// isGone tells whether the tenant has nothing here any more.
func (t *tenant) isGone() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.gone
}

// begin takes one of the calls that a tenant may have at a time, until the context ends.
func (t *tenant) begin(ctx context.Context) error {
	t.ask(time.Now(), 1)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.calls >= maxCalls {
		return over("calls", rpctypes.ErrGRPCRequestTooManyRequests)
	}
	t.calls++
	context.AfterFunc(ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.calls--
	})
	return nil
}

// over counts a call that is over a limit, which it is refused with.
func over(limit string, err error) error {
	metrics.TenantRefused(limit)
	return err
}

// await waits for a turn.
func await(ctx context.Context, l *rate.Limiter, n int) error {
	late, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := l.WaitN(late, min(n, l.Burst())); err != nil && ctx.Err() == nil {
		return over("rate", rpctypes.ErrGRPCRequestTooManyRequests)
	}
	return ctx.Err()
}

// Read implements etcdserve.Keeper.
func (t *tenant) Read(ctx context.Context, r etcdserve.Reading) (func(bytes int64), error) {
	n := r.Keys + r.Ranges
	t.ask(time.Now(), int(n/operationsPerAsk))
	if err := await(ctx, t.reads, int(n)); err != nil {
		return nil, err
	}
	turns := min(r.Keys+r.Ranges*rangeTurns, rangeTurns)
	if err := t.turn(ctx, turns); err != nil {
		return nil, err
	}
	// Not before its turn: all that wait for one would go on at once, when what was read is paid.
	if err := await(ctx, t.bytes, 0); err != nil {
		t.turns.Release(turns)
		return nil, err
	}
	done := func() { t.turns.Release(turns) }
	if !r.Stream {
		done = caller(ctx).hold(done)
	}
	return func(bytes int64) {
		// Paid afterwards, when it is known: the next one waits.
		t.bytes.ReserveN(time.Now(), int(min(bytes, readBytes)))
		done()
	}, nil
}

// turn waits for turns. Connections that have some and whose client does not read may have to end for that.
func (t *tenant) turn(ctx context.Context, n int64) error {
	for {
		late, cancel := context.WithTimeout(ctx, patience)
		err := t.turns.Acquire(late, n)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		t.cutDeaf(time.Now().Add(-untaken))
	}
}

// cutDeaf ends the connections with an answer that they have not taken since then.
func (t *tenant) cutDeaf(since time.Time) {
	t.mu.Lock()
	var all []*connection
	for c := range t.connections {
		if c.holdsSince(since) {
			all = append(all, c)
		}
	}
	t.mu.Unlock()
	for _, c := range all {
		c.cut()
	}
}

// Write implements etcdserve.Keeper.
func (t *tenant) Write(ctx context.Context, g etcdserve.Growth) (func(revision int64), error) {
	t.mu.Lock()
	limits := t.limits
	t.mu.Unlock()
	if g.Largest > limits.ValueBytes {
		return nil, over("size", rpctypes.ErrGRPCRequestTooLarge)
	}
	t.ask(time.Now(), int(g.Writes/operationsPerAsk))
	if err := await(ctx, t.writes, int(g.Writes)); err != nil {
		return nil, err
	}
	if g.Bytes == 0 {
		return func(int64) {}, nil
	}
	return t.uses.reserve(ctx, g, limits)
}

// Watch implements etcdserve.Keeper.
func (t *tenant) Watch() (func(), error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watches >= t.limits.Watches {
		return nil, over("watches", rpctypes.ErrGRPCRequestTooManyRequests)
	}
	t.watches++
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.watches--
	}, nil
}

// Grant implements etcdserve.Keeper.
func (t *tenant) Grant(ctx context.Context, ttl int64) (int64, error) {
	if err := await(ctx, t.writes, 1); err != nil {
		return 0, err
	}
	return t.leases.grant(ttl, time.Now())
}

// Lease implements etcdserve.Keeper.
func (t *tenant) Lease(ctx context.Context, id int64) (clientv3.LeaseID, error) {
	return t.leases.lease(ctx, t.at.client, id, time.Now())
}

// Compact implements etcdserve.Keeper. What others have in the storage has its history,
// too: the tenant's ends here, and the storage's when the server that has it compacts.
func (t *tenant) Compact(ctx context.Context, revision int64) error {
	current, err := t.at.client.Get(ctx, t.at.root(t.id.name), clientv3.WithCountOnly())
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case revision > current.Header.Revision:
		return rpctypes.ErrGRPCFutureRev
	case revision <= t.compacted:
		return rpctypes.ErrGRPCCompacted
	}
	t.compacted = revision
	return nil
}

// Compacted implements etcdserve.Keeper.
func (t *tenant) Compacted() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.compacted
}

// Size implements etcdserve.Keeper.
func (t *tenant) Size(ctx context.Context) (int64, error) {
	u, err := t.uses.get(ctx)
	return u.bytes, err
}
