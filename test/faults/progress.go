package faults

import (
	"context"
	"sync"
)

// progress counts operations, and tells when so many are done.
type progress struct {
	mu           sync.Mutex
	done, failed int
	waiting      []waiter
}

type waiter struct {
	reached func(done, failed int) bool
	signal  chan struct{}
}

func newProgress() *progress { return &progress{} }

// add counts an operation.
func (p *progress) add(failed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	if failed {
		p.failed++
	}
	still := p.waiting[:0]
	for _, w := range p.waiting {
		if w.reached(p.done, p.failed) {
			close(w.signal)
		} else {
			still = append(still, w)
		}
	}
	p.waiting = still
}

// failures is how many operations failed.
func (p *progress) failures() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// wait returns when what is counted has reached something.
func (p *progress) wait(ctx context.Context, reached func(done, failed int) bool) error {
	p.mu.Lock()
	w := waiter{reached, make(chan struct{})}
	if reached(p.done, p.failed) {
		close(w.signal)
	} else {
		p.waiting = append(p.waiting, w)
	}
	p.mu.Unlock()
	select {
	case <-w.signal:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// place is where clients find the process that runs.
type place struct {
	mu      sync.Mutex
	child   *child
	changed chan struct{}
}

func newPlace() *place { return &place{changed: make(chan struct{})} }

func (p *place) put(c *child) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.child = c
	close(p.changed)
	p.changed = make(chan struct{})
}

// now returns the newest process, which may have ended.
func (p *place) now() *child {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.child
}

// get returns a process that runs, when there is one.
func (p *place) get(ctx context.Context) (*child, error) {
	for {
		p.mu.Lock()
		c, changed := p.child, p.changed
		p.mu.Unlock()
		if c != nil {
			select {
			case <-c.exited:
			default:
				return c, nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
