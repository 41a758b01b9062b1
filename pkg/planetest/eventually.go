package planetest

import (
	"context"
	"time"
)

// pollInterval is how often a check runs when nothing in the plane changes: it may
// depend on something else, such as a cache.
const pollInterval = 20 * time.Millisecond

// Eventually waits until check returns nil. It calls check at once, whenever an
// object in the plane changes, and now and then, since check may depend on
// something else. The test fails with the last error of check when the patience
// ends, and the context with it: see [Plane.Within].
func (p *Plane) Eventually(t TB, check func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := p.within(contextOf(t))
	defer cancel()
	if last := p.eventually(ctx, check); last != nil {
		t.Fatalf("eventually: %v: %v", context.Cause(ctx), last)
	}
}

// eventually returns nil, or the last error of check when the context ended.
func (p *Plane) eventually(ctx context.Context, check func(ctx context.Context) error) (last error) {
	for {
		changed := p.server.changes.Next()
		err := check(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err // later ones only tell that the context ended
		}
		select {
		case <-changed:
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return last
		}
	}
}

// Consistently fails the test when check returns an error within d. It calls check at
// once, whenever an object in the plane changes, now and then, and when d is over.
func (p *Plane) Consistently(t TB, d time.Duration, check func(ctx context.Context) error) {
	t.Helper()
	ctx := contextOf(t)
	begun := time.Now()
	end := time.After(d)
	for over := false; ; {
		changed := p.server.changes.Next()
		if err := check(ctx); err != nil {
			t.Fatalf("consistently: failed after %v: %v", time.Since(begun).Round(time.Millisecond), err)
		}
		if over {
			return
		}
		select {
		case <-changed:
		case <-time.After(pollInterval):
		case <-end:
			over = true
		case <-ctx.Done():
			t.Fatalf("consistently: the test ended: %v", context.Cause(ctx))
		}
	}
}
