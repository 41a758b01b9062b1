package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sailplane-dev/sailplane/test/faults/history"
	"github.com/sailplane-dev/sailplane/test/faults/wire"
)

const (
	// kills is how often a process is killed, and losses how often power is
	// lost, which takes longer.
	kills, powerLosses = 3, 2
	// restarts is how often what servers share is killed. Its clients take a
	// second to find the next one.
	restarts = 2
	// startTime is within what time a process that starts is killed.
	startTime = 150 * time.Millisecond
	// blocks is how small a disk may be. A log of some hundred writes is larger
	// than four times that.
	blocks = 2
	// fullDisks is how often a disk is full, and refusals how many operations
	// fail before there is room again.
	fullDisks, refusals = 2, 40
)

// inject makes the faults of the round, each when clients have done so much.
func (r *run) inject(ctx context.Context) error {
	switch r.round.Fault {
	case None:
		return nil
	case Kill:
		return r.each(ctx, kills, r.killOnce)
	case Restart:
		return r.each(ctx, restarts, func(context.Context) error { return errors.Join(r.outside.kill(r.random), r.outside.start()) })
	case Full:
		return r.each(ctx, fullDisks, r.fillOnce)
	case Power:
		return r.each(ctx, powerLosses, r.loseOnce)
	case Proxy:
		return r.disturb(ctx)
	}
	return fmt.Errorf("fault %q: want one of %s, %s, %s, %s, %s and %s", r.round.Fault, None, Kill, Full, Power, Restart, Proxy)
}

// each makes n faults at random moments.
func (r *run) each(ctx context.Context, n int, fault func(context.Context) error) error {
	points := make([]int, n)
	for i := range points {
		points[i] = 1 + r.random.IntN(budget*9/10)
	}
	slices.Sort(points)
	for _, point := range points {
		if err := r.progress.wait(ctx, func(done, _ int) bool { return done >= point }); err != nil {
			return err
		}
		if err := fault(ctx); err != nil {
			return fmt.Errorf("fault %d: %w", r.faults+1, err)
		}
		r.faults++
	}
	return nil
}

// killOnce kills a server, and starts it again.
func (r *run) killOnce(ctx context.Context) error {
	n := r.random.IntN(len(r.places))
	r.places[n].now().kill()
	for r.random.IntN(2) == 0 {
		if err := r.killStarting(ctx); err != nil {
			return err
		}
	}
	return r.start(ctx, n)
}

// killStarting kills a process while it starts, or soon after that.
func (r *run) killStarting(ctx context.Context) error {
	cmd, err := r.command()
	if err != nil {
		return err
	}
	short, cancel := context.WithTimeout(ctx, time.Duration(r.random.Int64N(int64(startTime))))
	defer cancel()
	c, err := startChild(short, cmd, func(*history.Op) {})
	if err != nil && short.Err() == nil {
		return err // it ended by itself
	}
	if c != nil {
		c.kill()
	}
	return nil
}

// fillOnce lets no file grow beyond a size until some operations failed, and
// then gives room again. A storage that still refuses to write after that has
// to be started again, and not to have lost anything.
func (r *run) fillOnce(ctx context.Context) error {
	c, err := r.places[0].get(ctx)
	if err != nil {
		return err
	}
	size := int64(blocks+r.random.IntN(4*blocks)) * 4096 // what a disk has no room for is whole blocks
	if _, err := c.do(wire.Request{Kind: wire.Room, Revision: size}); err != nil {
		return nil //nolint:nilerr // it ended by itself after the last full disk, and starts again
	}
	enough := r.progress.failures() + refusals
	err = r.progress.wait(ctx, func(done, failed int) bool { return failed >= enough || done >= budget })
	if err != nil {
		return err
	}
	_, _ = c.do(wire.Request{Kind: wire.Room}) // a new process has no limit
	writer := newClient(r, reader+2+r.faults)
	for try := range refusals {
		op, err := writer.do(ctx, history.Op{
			Kind: history.Create, Key: fmt.Sprintf("%send/room%d-%d", root, r.faults, try), Value: fmt.Sprintf("room-%d-%d", r.faults, try),
		})
		if err != nil || op.Outcome == history.OK {
			return err
		}
	}
	if c = r.places[0].now(); c.expected.Swap(true) {
		return nil
	}
	c.kill()
	return r.start(ctx, 0)
}
