package storageapi

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/peer"

	"github.com/sailplane-dev/sailplane/pkg/internal/etcdserve"
)

// TestAskedTooMuch: a tenant that asks for more than it may is not listened to until its turn comes, and not for ever.
func TestAskedTooMuch(t *testing.T) {
	t.Parallel()
	tenant := &tenant{}
	const writes = 10
	tenant.limit(Limits{WritesPerSecond: writes})
	const perSecond = writes * (readsPerWrite + 1)
	now := time.Now()
	ask := func(n int) {
		for range n {
			tenant.ask(now, 1)
		}
	}
	ask(2 * perSecond)
	if wait := tenant.ahead(now); wait > 0 {
		t.Errorf("after what two seconds are good for, it waits %v", wait)
	}
	ask(perSecond)
	if wait := tenant.ahead(now); wait < 900*time.Millisecond || wait > 1100*time.Millisecond {
		t.Errorf("after what one more second is good for, it waits %v", wait)
	}
	ask(1000 * perSecond)
	if wait := tenant.ahead(now); wait > deaf {
		t.Errorf("it waits %v, want %v at most", wait, deaf)
	}
	now = now.Add(deaf + time.Second)
	ask(1)
	if wait := tenant.ahead(now); wait > 0 {
		t.Errorf("when it has waited, it waits %v", wait)
	}
}

// connected is a tenant with a connection, and the context of a call on that.
func connected(t *testing.T) (*tenant, context.Context) {
	t.Helper()
	mine, other := net.Pipe()
	t.Cleanup(func() { _ = other.Close() })
	of := &tenant{turns: semaphore.NewWeighted(maxTurns), bytes: rate.NewLimiter(readBytes, readBytes), connections: map[*connection]struct{}{}}
	of.limit(Limits{WritesPerSecond: 1000})
	c := &connection{
		Conn: tls.Server(mine, &tls.Config{MinVersion: tls.VersionTLS12}), tenant: of, leave: func(*connection) {}, closed: make(chan struct{}),
		held: map[*held]struct{}{},
	}
	of.connections[c] = struct{}{}
	return of, peer.NewContext(t.Context(), &peer.Peer{AuthInfo: session{connection: c}})
}

// TestUntakenAnswers: a client that does not take its answers has its tenant wait, until its connection is ended for that.
func TestUntakenAnswers(t *testing.T) {
	t.Parallel()
	of, ctx := connected(t)
	for range maxTurns / rangeTurns {
		if _, err := of.Read(ctx, etcdserve.Reading{Ranges: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if of.turns.TryAcquire(1) {
		t.Error("there is another turn while no answer is taken")
	}
	read := make(chan error, 1)
	go func() {
		done, err := of.Read(ctx, etcdserve.Reading{Keys: 1})
		if err == nil {
			done(1)
		}
		read <- err
	}()
	of.cutDeaf(time.Now().Add(-untaken))
	if of.turns.TryAcquire(1) {
		t.Error("a connection ends though its answers are new")
	}
	of.cutDeaf(time.Now().Add(time.Second))
	if err := <-read; err != nil {
		t.Errorf("after the connection has ended: %v", err)
	}
	if !of.turns.TryAcquire(maxTurns) {
		t.Error("turns are lost")
	}
}

// TestCalls: a tenant has so many calls at a time, and others when they have ended.
func TestCalls(t *testing.T) {
	t.Parallel()
	of, ctx := connected(t)
	calls, end := context.WithCancel(ctx)
	defer end()
	for range maxCalls {
		if err := begin(calls); err != nil {
			t.Fatal(err)
		}
	}
	if err := begin(ctx); !errors.Is(err, rpctypes.ErrGRPCRequestTooManyRequests) {
		t.Errorf("one call too many: %v", err)
	}
	end()
	again(t, "no call ends", func() error { return of.begin(ctx) })
}

// TestHeard: large requests take as long as many small ones.
func TestHeard(t *testing.T) {
	t.Parallel()
	of, _ := connected(t)
	now := time.Now()
	before := of.asks.TokensAt(now)
	for range 100 {
		of.hear(now, bytesPerAsk/10)
	}
	if n := before - of.asks.TokensAt(now); n < 9 || n > 10 {
		t.Errorf("bytes of ten calls count as %v", n)
	}
	of.hear(now, 1<<30)
	if wait := of.ahead(now); wait <= 0 {
		t.Error("after a gibibyte, it does not wait")
	}
}
