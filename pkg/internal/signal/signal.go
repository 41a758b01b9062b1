// Package signal tells waiters that something changed.
package signal

import (
	"context"
	"sync"
)

// Change tells any number of waiters that something changed. Its zero value is
// ready. A waiter calls Next before it reads what must not be missed.
type Change struct {
	mu   sync.Mutex
	next chan struct{} // nil while nobody waits
}

// Next returns a channel that is closed at the next change.
func (c *Change) Next() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = make(chan struct{})
	}
	return c.next
}

// Announce tells those who wait.
func (c *Change) Announce() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next != nil {
		close(c.next)
		c.next = nil
	}
}

// Await returns when the condition holds, which it asks now and after each change, or
// why the context ended.
func (c *Change) Await(ctx context.Context, holds func() bool) error {
	for {
		next := c.Next()
		if holds() {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Closed tells whether a channel is closed to which nobody sends.
func Closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Wake sends on a channel with room for one, unless what was sent before is still there.
func Wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
