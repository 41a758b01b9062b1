package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sailplane-dev/sailplane/test/faults/history"
)

// tries is how often the last reader asks again for what failed.
const tries = 100

// marker is the key of the last write, which tells that the watch has seen all.
const marker = root + "end/marker"

// prepare makes what the storage needs beside its process.
func (r *run) prepare(ctx context.Context) error {
	if r.round.Fault == Power {
		r.disk = newLosses(r.dataDir())
	}
	if !isShared(r.round.Engine) {
		return nil
	}
	var err error
	r.outside, err = startOutside(ctx, r.round, r.dir)
	return err
}

// dataDir is the directory that the storage writes to.
func (r *run) dataDir() string { return filepath.Join(r.dir, "data") }

// argument names the storage to the server.
func (r *run) argument() (string, error) {
	switch r.round.Engine {
	case Memory:
		return "memory", nil
	case SQLite:
		return "sqlite:" + filepath.Join(r.dataDir(), "state.db"), nil
	case Etcd:
		return "etcd:" + r.dataDir(), nil
	case External, Postgres, MariaDB:
		return r.outside.address(), nil
	}
	return "", fmt.Errorf("engine %q: want one of %s", r.round.Engine, strings.Join(slices.Sorted(maps.Keys(Plan())), ", "))
}

// command is the process that has the storage.
func (r *run) command() (*exec.Cmd, error) {
	argument, err := r.argument()
	if err != nil {
		return nil, err
	}
	if r.round.NoSync {
		return exec.Command(r.round.Programs.Server, "-unsafe-no-sync", argument), nil
	}
	return exec.Command(r.round.Programs.Server, argument), nil
}

// start starts a server on the data there is, the last one with a watch that goes on where
// the one before ended.
func (r *run) start(ctx context.Context, n int) error {
	cmd, err := r.command()
	if err != nil {
		return err
	}
	if r.disk != nil {
		cmd = r.disk.traced(cmd)
	}
	c, err := startChild(ctx, cmd, func(e *history.Op) { r.deliver(ctx, e) })
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		c.kill() // nobody else would
		return context.Cause(ctx)
	}
	r.places[n].put(c)
	if n == len(r.places)-1 {
		c.observe(root, r.lastSeen()+1)
	}
	go r.supervise(ctx, c, n)
	return nil
}

// supervise ends the round when a process ends that nobody ended. A full disk
// may end one: then it starts again.
func (r *run) supervise(ctx context.Context, c *child, n int) {
	<-c.exited
	switch {
	case c.expected.Swap(true) || ctx.Err() != nil:
	case r.round.Fault == Full:
		if err := r.start(ctx, n); err != nil {
			r.fail(fmt.Errorf("start again after a full disk: %w", err))
		}
	default:
		r.fail(fmt.Errorf("the server ended by itself: %v: %s", c.cmd.ProcessState, c.stderr.String()))
	}
}

func (r *run) lastSeen() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen
}

// deliver keeps an event of the watch. A watch that ended is begun again.
func (r *run) deliver(ctx context.Context, e *history.Op) {
	if e == nil {
		if c := r.places[len(r.places)-1].now(); c != nil && ctx.Err() == nil && !c.expected.Load() {
			time.AfterFunc(pause, func() { c.observe(root, r.lastSeen()+1) })
		}
		return
	}
	at := r.now()
	e.Client, e.Call, e.Return = reader+1, at, at
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = max(r.seen, e.Revision)
	r.ops = append(r.ops, *e)
	if e.Key == marker {
		select {
		case <-r.marked:
		default:
			close(r.marked)
		}
	}
}

// settle reads everything once more, and waits until the watch has delivered all.
func (r *run) settle(ctx context.Context) error {
	last := newClient(r, reader)
	for prefix := range prefixes {
		for _, kind := range []history.Kind{history.List, history.Count} {
			if _, err := last.insist(ctx, history.Op{Kind: kind, Key: prefixOf(prefix)}); err != nil {
				return err
			}
		}
		for key := range keys {
			if _, err := last.insist(ctx, history.Op{Kind: history.Get, Key: keyOf(prefix, key)}); err != nil {
				return err
			}
		}
	}
	marked, err := last.insist(ctx, history.Op{Kind: history.Create, Key: marker, Value: "end"})
	if err != nil {
		return err
	}
	if r.lastSeen() > marked.Revision {
		return nil // revisions went back: the watch is past it, and the check finds out
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case <-r.marked:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the watch does not deliver the last write: %w", context.Cause(ctx))
	}
}

// insist does an operation until it is answered. Every try is recorded. A try
// to write may have happened though it was not answered, and then is refused.
func (c *client) insist(ctx context.Context, op history.Op) (history.Op, error) {
	for try := range tries {
		if op.Value != "" {
			op.Value = fmt.Sprintf("%d-end-%d", c.id, try)
		}
		done, err := c.do(ctx, op)
		if err != nil {
			return done, err
		}
		if done.Outcome == history.OK || done.Outcome == history.Refused {
			return done, nil
		}
		select {
		case <-time.After(10 * pause):
		case <-ctx.Done():
			return done, context.Cause(ctx)
		}
		op.Error = done.Error
	}
	return op, fmt.Errorf("after the faults, %s %s is not answered: %s", op.Kind, op.Key, op.Error)
}

// end stops what runs. After an error of the round nothing is asked to stop in order.
func (r *run) end(failed error) error {
	r.fail(errors.New("the round is over"))
	var err error
	for _, p := range r.places {
		switch c := p.now(); {
		case c == nil:
		case failed == nil:
			err = errors.Join(err, c.stop())
		default:
			c.kill()
		}
	}
	if r.outside != nil {
		if failed != nil {
			err = fmt.Errorf("what servers share said:\n%s", r.outside.said())
		}
		err = errors.Join(err, r.outside.stop())
	}
	return err
}
