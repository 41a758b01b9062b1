package controlplane

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// WorkFunc is work of a part in a running plane.
type WorkFunc func(ctx context.Context, p *Plane) error

// Work is what a part does in a running plane: something that the start waits
// for, something that runs from then on, or both. The context of both ends when
// the plane stops, and when its start is given up. An error of either stops the
// plane, and with the root plane the server.
type Work struct {
	// Name is the work's name in errors, and the name of its Lease when it is Elected.
	// It is unique in a plane. Required.
	Name string
	// Start is called before the plane is ready, one after the other in the order of
	// the parts. The plane serves its own clients by then. Nil: there is nothing to
	// wait for.
	Start WorkFunc
	// Run begins when Start has returned, and without Start before any other Start is
	// called. A stopping plane waits for it. Nil: nothing runs.
	Run WorkFunc
	// Stop is called when all work of the plane has returned and no request is served
	// any more, even if Start failed. May be nil.
	Stop func()
	// Elected lets only one of the servers that share a storage (see [Traits]) Run at
	// a time: the one that holds the Lease of this name in kube-system, once its plane
	// is ready. Where the storage is not shared, it has no effect.
	Elected bool
}

// Work declares work.
func (p *Plan) Work(w Work) {
	p.work = append(p.work, named[Work]{p.part, w.Name, w})
}

// checkWork finds names that are given twice, and work that does nothing.
func checkWork(kind string, work []named[Work]) []error {
	errs := duplicates(kind, work)
	for _, w := range work {
		if w.value.Start == nil && w.value.Run == nil && w.value.Stop == nil {
			errs = append(errs, fmt.Errorf("part %q: %s %q: Start, Run and Stop are all nil", w.part, kind, w.name))
		}
	}
	return errs
}

// workers do the work of a plane's parts.
type workers struct {
	plane   *Plane
	fail    func(error) // tells why the plane cannot go on
	work    []named[Work]
	running sync.WaitGroup
}

// start begins work, and returns when every Start has returned. The first context
// bounds the start, the second is the plane's life.
func (w *workers) start(ctx, life context.Context, work []named[Work]) error {
	w.work = append(w.work, work...)
	life, abandon := context.WithCancelCause(life)
	defer context.AfterFunc(ctx, func() { abandon(context.Cause(ctx)) })()
	for _, one := range work {
		if one.value.Start == nil {
			w.run(life, one)
		}
	}
	for _, one := range work {
		if one.value.Start == nil {
			continue
		}
		if err := one.value.Start(life, w.plane); err != nil {
			return one.failed(err)
		}
		w.run(life, one)
	}
	return nil
}

// run calls the Run of work in the background.
func (w *workers) run(life context.Context, one named[Work]) {
	do := one.value.Run
	if do == nil {
		return
	}
	if one.value.Elected && w.plane.stores.Shared {
		do = w.plane.elect(one.name, do)
	}
	w.running.Go(func() {
		if err := do(life, w.plane); err != nil && life.Err() == nil {
			w.fail(one.failed(err))
		}
	})
}

// stop waits for the work, whose context has ended, and then calls each Stop.
func (w *workers) stop() error {
	var late error
	select {
	case <-background(w.running.Wait):
	case <-time.After(workTimeout):
		late = fmt.Errorf("work was still running %v after its context ended: %s", workTimeout, w.names())
	}
	for _, one := range w.work {
		if one.value.Stop != nil {
			one.value.Stop()
		}
	}
	return late
}

// background calls f in a goroutine, and returns a channel that is closed when f has
// returned.
func background(f func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return done
}

func (w *workers) names() string {
	var names []string
	for _, one := range w.work {
		if one.value.Run != nil {
			names = append(names, fmt.Sprintf("%s of part %q", one.name, one.part))
		}
	}
	return strings.Join(names, ", ")
}

// failed is an error of what a part declared.
func (n named[T]) failed(err error) error {
	return fmt.Errorf("part %q: %s: %w", n.part, n.name, err)
}
