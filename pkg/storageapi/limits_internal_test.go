package storageapi

import (
	"testing"
	"time"
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
