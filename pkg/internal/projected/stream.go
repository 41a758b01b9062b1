package projected

import (
	"context"
	"errors"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// stream is a watch whose events a function sends.
type stream struct {
	result chan watch.Event
	end    context.CancelFunc
	ended  sync.WaitGroup
}

// begin has a function send events, until the watch is stopped or its context ends. An error of
// the function is the last event.
func begin(ctx context.Context, run func(ctx context.Context, send func(watch.Event) bool) error) watch.Interface {
	ctx, end := context.WithCancel(ctx)
	s := &stream{result: make(chan watch.Event), end: end}
	send := func(e watch.Event) bool {
		select {
		case s.result <- e:
			return true
		case <-ctx.Done():
			return false
		}
	}
	s.ended.Go(func() {
		defer close(s.result)
		defer end()
		if err := run(ctx, send); err != nil && ctx.Err() == nil {
			send(failure(err))
		}
	})
	return s
}

// ResultChan implements watch.Interface.
func (s *stream) ResultChan() <-chan watch.Event { return s.result }

// Stop implements watch.Interface.
func (s *stream) Stop() {
	s.end()
	s.ended.Wait()
}

// forward sends the events of a watch until it ends.
func forward(ctx context.Context, w watch.Interface, send func(watch.Event) bool) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, more := <-w.ResultChan():
			if !more || !send(e) {
				return nil
			}
		}
	}
}

// failure is an error as the last event of a watch.
func failure(err error) watch.Event {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	said := status.Status()
	return watch.Event{Type: watch.Error, Object: &said}
}
