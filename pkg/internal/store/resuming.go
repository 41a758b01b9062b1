package store

import (
	"context"
	"math"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
)

// resuming is a watch that goes on when the watch cache ended it. The cache ends a
// watch that has some ten events to send when another comes, and has no patience in its
// first seconds, and 50 ms a second later
// (https://github.com/kubernetes/apiserver/blob/v0.37.2/pkg/storage/cacher/cacher.go#L1033):
// on a busy server that ends the watches of clients that take their events at once, and
// one who writes much ends those of all others. Here the watch is opened again from
// where it was, and gets what it missed from the history of the cache. What the cache no
// longer has is an ERROR event with status 410, as for every watch that comes too late.
type resuming struct {
	resumable
	result chan watch.Event
	done   chan struct{} // closed when it is stopped

	mu      sync.Mutex
	current watch.Interface // ends when this one is stopped

	// Only the goroutine that runs the watch uses the rest.
	options storage.ListOptions // to go on with
	state   resumeState
	marked  bool   // a bookmark marks the end of the present objects, and was not sent
	version uint64 // of the last event that tells where the watch is; 0: none did
	present uint64 // no present object has a higher version
	ended   bool   // by an ERROR event
}

// resumable is what can be watched again.
type resumable struct {
	open func(storage.ListOptions) (watch.Interface, error)
	// now returns a version that no present object is above.
	now func() (uint64, error)
	// passed tells whether the present watch has come to a version from which on another one is to
	// be opened. Nil: none is.
	passed func(version uint64) bool
}

// resumeState is what is known of how far a watch is.
type resumeState int

const (
	// nothing of a watch that begins with the present objects was sent: it can begin
	// again.
	begins resumeState = iota
	// Some of the present objects were sent, in no order of versions.
	among
	// The version is where the watch is.
	at
	// A watch from now on, whatever that was, cannot begin again.
	unknown
)

// resumed opens a watch of a cache, which goes on until its context ends, it is
// stopped, or the cache has an error for it.
func resumed(ctx context.Context, opts storage.ListOptions, of resumable) (watch.Interface, error) {
	w, err := of.open(opts)
	if err != nil {
		return nil, err
	}
	r := &resuming{
		resumable: of, result: make(chan watch.Event, cap(w.ResultChan())), done: make(chan struct{}), options: opts,
		current: w, state: begins, present: math.MaxUint64,
	}
	asked, anywhere := opts.SendInitialEvents != nil, opts.ResourceVersion == "" || opts.ResourceVersion == "0"
	switch present := asked && *opts.SendInitialEvents; {
	case present && opts.Predicate.AllowWatchBookmarks:
		r.marked = true
	case present || anywhere && !asked:
		if now, err := of.now(); err == nil {
			r.present = now
		}
	case anywhere:
		r.state = unknown
	default:
		r.state = at
	}
	go r.run(ctx, w)
	return r, nil
}

// ResultChan implements watch.Interface.
func (r *resuming) ResultChan() <-chan watch.Event { return r.result }

// Stop implements watch.Interface.
func (r *resuming) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !signal.Closed(r.done) {
		close(r.done)
		r.current.Stop()
	}
}

// use makes a watch the one that ends when this one is stopped, and tells whether it
// was not.
func (r *resuming) use(w watch.Interface) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if signal.Closed(r.done) {
		w.Stop()
		return false
	}
	r.current = w
	return true
}

func (r *resuming) run(ctx context.Context, w watch.Interface) {
	defer close(r.result)
	patience := wait.Backoff{Duration: 5 * time.Millisecond, Factor: 2, Steps: 8, Cap: time.Second}
	idle := patience
	for {
		sent := r.forward(w)
		if signal.Closed(r.done) || r.ended || ctx.Err() != nil || r.state == among || r.state == unknown {
			return
		}
		if sent {
			idle = patience
		} else if !r.rest(ctx, idle.Step()) {
			return
		}
		if r.version > 0 {
			r.options.ResourceVersion, r.options.ResourceVersionMatch = strconv.FormatUint(r.version, 10), ""
			r.options.SendInitialEvents = nil
		}
		var err error
		if w, err = r.open(r.options); err != nil {
			return // the cache is being filled again, or has ended: the client finds out which
		}
		if !r.use(w) {
			return
		}
	}
}

// forward hands on the events of a watch until it ends, or this one is stopped. Each event
// of each watch comes through here: a plain receive, and a send that finds room, cost a
// third of those that wait for two things.
func (r *resuming) forward(w watch.Interface) (sent bool) {
	defer w.Stop()
	for e := range w.ResultChan() {
		select {
		case r.result <- e:
		default:
			select {
			case r.result <- e:
			case <-r.done:
				return sent
			}
		}
		sent = true
		if r.note(e); r.ended || r.passed != nil && r.passed(r.version) {
			break // such a watch may never end by itself
		}
	}
	return sent
}

// rest waits before the next attempt of a watch that got nothing in its last one.
func (r *resuming) rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.done:
	case <-ctx.Done():
	}
	return false
}

// note keeps how far the watch is. Present objects come first, as ADDED; what comes
// after them is a change, or the bookmark that marks their end.
func (r *resuming) note(e watch.Event) {
	if e.Type == watch.Error {
		r.ended = true
		return
	}
	if r.state == unknown {
		return
	}
	version, err := storage.APIObjectVersioner{}.ObjectResourceVersion(e.Object)
	if err != nil || version == 0 {
		r.state = unknown
		return
	}
	isChange := !r.marked && (e.Type != watch.Added || version > r.present)
	if r.state != at && e.Type != watch.Bookmark && !isChange {
		r.state = among
		return
	}
	r.state, r.marked, r.version = at, false, version
}
