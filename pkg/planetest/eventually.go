package planetest

import (
	"context"
	"time"
)

// elsewhere is how often what is waited for is looked at when nothing in the
// plane changes: it may depend on something else, such as a cache.
const elsewhere = 20 * time.Millisecond

// Eventually waits until check returns nil. It is called at once, whenever an
// object in the plane changes, and now and then, since what it looks at may be
// elsewhere. The test fails with its last error. Its context ends when the
// patience does: see [Plane.Within].
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
			last = err // later ones tell only that the context ended
		}
		select {
		case <-changed:
		case <-time.After(elsewhere):
		case <-ctx.Done():
			return last
		}
	}
}

// Consistently has the test fail when check returns an error within d. It is
// called at once, whenever an object in the plane changes, now and then, and
// when d is over.
func (p *Plane) Consistently(t TB, d time.Duration, check func(ctx context.Context) error) {
	t.Helper()
	ctx := contextOf(t)
	begun := time.Now()
	end := time.After(d)
	for over := false; ; {
		changed := p.server.changes.Next()
		if err := check(ctx); err != nil {
			t.Fatalf("consistently: not any more after %v: %v", time.Since(begun).Round(time.Millisecond), err)
		}
		if over {
			return
		}
		select {
		case <-changed:
		case <-time.After(elsewhere):
		case <-end:
			over = true
		case <-ctx.Done():
			t.Fatalf("consistently: the test ended: %v", context.Cause(ctx))
		}
	}
}
