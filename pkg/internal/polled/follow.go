package polled

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sailplane-dev/sailplane/pkg/internal/source"
)

// The pauses before a source is followed again that failed grow from the first to the last.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 30 * time.Second
)

// followed is a source that says what changes, for as long as a store lives.
type followed struct {
	life *life

	mu      sync.Mutex
	synced  bool
	err     error         // why it is not
	changed chan struct{} // closed when one of them changes
}

// wait returns when the store has what the source says.
func (f *followed) wait(ctx context.Context) error {
	late := f.life.late()
	ctx, cancel := context.WithTimeoutCause(ctx, f.life.config.Timeout, late)
	defer cancel()
	for {
		f.mu.Lock()
		synced, err, changed := f.synced, f.err, f.changed
		f.mu.Unlock()
		if synced || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-f.life.ctx.Done():
			return source.ErrClosed
		case <-ctx.Done():
			err := context.Cause(ctx)
			if err == late { //nolint:errorlint // it is this one, not the caller's
				f.life.tell(err)
			}
			return err
		}
	}
}

func (f *followed) set(synced bool, err error) {
	f.life.tell(err)
	if f.synced && !synced {
		f.life.last.Good(time.Now())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.synced, f.err = synced, err
	close(f.changed)
	f.changed = make(chan struct{})
}

// run follows the source, again and again, until the end of the store.
func (f *followed) run() {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		begun := time.Now()
		f.set(false, f.once())
		if time.Since(begun) > lastPause {
			pause = firstPause
		}
		select {
		case <-time.After(pause):
		case <-f.life.ctx.Done():
			return
		}
	}
}

// once calls the function of the source, and returns why it does not go on.
func (f *followed) once() error {
	ctx, cancel := context.WithCancel(f.life.ctx)
	changes, ended := make(chan Change), make(chan ending, 1)
	go func() {
		defer func() {
			if why := recover(); why != nil {
				ended <- ending{fmt.Errorf("panic: %v", why)}
			}
		}()
		ended <- ending{f.life.config.Follow(ctx, changes)}
	}()
	err := f.take(ctx, changes, ended)
	cancel()
	if errors.Is(err, errEnded) {
		return err
	}
	// It may be about to send. One that does not come back after the end is left alone.
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for {
			select {
			case <-changes:
			case <-ended:
				return
			}
		}
	}()
	select {
	case <-gone:
	case <-f.life.ctx.Done():
	}
	return err
}

// ending is what the function of a source returned.
type ending struct{ err error }

// errEnded is wrapped by the errors of a source that returned.
var errEnded = errors.New("the source ended")

// take has the store have what a source sends, until it ends or sends nonsense.
func (f *followed) take(ctx context.Context, changes <-chan Change, ended <-chan ending) error {
	first := map[string]runtime.Object{} // nil once all objects were sent
	for {
		select {
		case e := <-ended:
			if e.err == nil {
				return errEnded
			}
			return fmt.Errorf("%w: %w", errEnded, e.err)
		case <-ctx.Done():
			return ctx.Err()
		case c := <-changes:
			if c.Synced {
				if first == nil {
					continue
				}
				if err := f.life.write(ctx, Query{}, slices.Collect(maps.Values(first))); err != nil {
					return err
				}
				first = nil
				f.set(true, nil)
				continue
			}
			if err := f.change(ctx, c, first); err != nil {
				return err
			}
		}
	}
}

// change takes one change: of the store, or of the first objects.
func (f *followed) change(ctx context.Context, c Change, first map[string]runtime.Object) error {
	key, err := f.life.keyOf(c.Object)
	switch {
	case err != nil:
		return err
	case first == nil && c.Removed:
		return f.life.write(ctx, f.life.query(key), nil)
	case first == nil:
		return f.life.write(ctx, f.life.query(key), []runtime.Object{c.Object})
	case c.Removed:
		delete(first, key)
	default:
		first[key] = c.Object
	}
	return nil
}
