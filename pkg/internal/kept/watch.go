package kept

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/keep"
)

// watcher is a watch.
type watcher[T any, PT Object[T]] struct {
	store    *Store[T, PT]
	in       scope
	from     int64 // after which events are sent
	initial  bool  // the present objects come first
	ended    bool  // a bookmark marks their end
	progress bool  // bookmarks say how far it is
	result   chan watch.Event
	cancel   context.CancelFunc
	told     string // the error that was logged
}

// buffer is how many events wait for who watches.
const buffer = 100

// Watch implements storage.Interface. It does not select: the watch cache that has it does.
// While the keeper fails it sends nothing, and goes on where it was.
func (s *Store[T, PT]) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	in, _, err := s.scope(key, opts.Recursive)
	if err != nil {
		return nil, err
	}
	version, err := s.Versioner().ParseResourceVersion(opts.ResourceVersion)
	if err != nil {
		return nil, err
	}
	if !opts.Predicate.Empty() {
		return nil, apierrors.NewBadRequest("only the watch cache can watch with a selector: it knows what objects were before")
	}
	present := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	w := &watcher[T, PT]{
		store: s, in: in, from: int64(version), //nolint:gosec // ParseResourceVersion would have to return more than any clock
		initial: present || opts.SendInitialEvents == nil && version == 0, ended: present && opts.Predicate.AllowWatchBookmarks,
		progress: opts.ProgressNotify, result: make(chan watch.Event, buffer),
	}
	if !w.initial && version == 0 {
		current, err := s.GetCurrentResourceVersion(ctx)
		if err != nil {
			return nil, err
		}
		w.from = int64(current) //nolint:gosec // it was one
	}
	ctx, w.cancel = context.WithCancel(ctx)
	go w.run(ctx)
	flowcontrol.WatchInitialized(ctx)
	return w, nil
}

// ResultChan implements watch.Interface.
func (w *watcher[T, PT]) ResultChan() <-chan watch.Event { return w.result }

// Stop implements watch.Interface.
func (w *watcher[T, PT]) Stop() { w.cancel() }

func (w *watcher[T, PT]) run(ctx context.Context) {
	defer close(w.result)
	defer w.cancel()
	err := error(nil)
	if w.initial {
		err = w.present(ctx)
	}
	if err == nil {
		err = w.follow(ctx)
	}
	if err == nil || ctx.Err() != nil {
		return
	}
	if errors.Is(err, keep.ErrExpired) {
		err = apierrors.NewResourceExpired(fmt.Sprintf("resource version %d: %v: list again", w.from, err))
	}
	w.send(ctx, watch.Event{Type: watch.Error, Object: statusOf(err)})
}

// statusOf is an error as an event has it.
func statusOf(err error) *metav1.Status {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	return &status
}

// send sends an event, unless the watch ends first.
func (w *watcher[T, PT]) send(ctx context.Context, e watch.Event) bool {
	select {
	case w.result <- e:
		return true
	case <-ctx.Done():
		return false
	}
}

// present sends what is there.
func (w *watcher[T, PT]) present(ctx context.Context) error {
	page, err := w.store.list(ctx, keep.Range{Namespace: w.in.namespace})
	if err != nil {
		return err
	}
	if w.from > page.Version {
		//nolint:gosec // versions are positive
		return storage.NewTooLargeResourceVersionError(uint64(w.from), uint64(page.Version), 1)
	}
	for _, item := range page.Items {
		o, err := w.store.object(item)
		if err != nil {
			return err
		}
		if item.Broken != nil || !w.in.has(keep.Key{Namespace: o.GetNamespace(), Name: o.GetName()}) {
			continue
		}
		if !w.send(ctx, watch.Event{Type: watch.Added, Object: o}) {
			return ctx.Err()
		}
	}
	w.from = page.Version
	if !w.ended {
		return nil
	}
	return w.bookmark(ctx, storage.AnnotateInitialEventsEndBookmark)
}

// bookmark says how far the watch is.
func (w *watcher[T, PT]) bookmark(ctx context.Context, mark func(runtime.Object) error) error {
	o := PT(new(T))
	if err := w.store.Versioner().UpdateObject(o, uint64(w.from)); err != nil { //nolint:gosec // versions are positive
		return err
	}
	if mark != nil {
		if err := mark(o); err != nil {
			return err
		}
	}
	w.send(ctx, watch.Event{Type: watch.Bookmark, Object: o})
	return nil
}

// maxPause is how long a watch waits at most after an error of the keeper.
const maxPause = 5 * time.Second

// progressPeriod is how often a watch says how far it is that was not asked: as often as etcd does
// for Kubernetes.
const progressPeriod = 5 * time.Second

// follow sends changes until the watch ends, or cannot go on.
func (w *watcher[T, PT]) follow(ctx context.Context) error {
	pause, asked := w.store.Poll, w.store.asked.Load()
	marked, at := w.from, time.Now()
	for {
		next, now := w.store.changed.Next(), w.store.asked.Load()
		begun := time.Now()
		err := w.look(ctx)
		w.tell(ctx, err)
		switch {
		case apierrors.IsServiceUnavailable(err):
			pause, next = min(2*pause, maxPause), nil
		case err != nil:
			return err
		default:
			w.store.Last.Good(begun)
			pause = w.store.Poll
			if w.progress && (now != asked || w.from != marked && time.Since(at) >= progressPeriod) {
				if err := w.bookmark(ctx, nil); err != nil {
					return err
				}
				marked, at = w.from, time.Now()
			}
			asked = now
		}
		if !wait(ctx, pause, next) {
			return nil
		}
	}
}

// wait returns after a time, or when something is announced; false when the context ended.
func wait(ctx context.Context, d time.Duration, next <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-next:
	case <-ctx.Done():
		return false
	}
	return true
}

// look sends what changed.
func (w *watcher[T, PT]) look(ctx context.Context) error {
	for more := true; more; {
		batch, err := call(ctx, &w.store.Config, w.store.slots, false, func(ctx context.Context) (keep.Batch[T], error) {
			return w.store.keeper.Changes(ctx, w.from)
		})
		if err != nil {
			return err
		}
		for _, change := range batch.Changes {
			if change.Version <= w.from || change.Version > batch.Version {
				return w.store.wrong("after version %d and up to %d it says that version %d changed", w.from, batch.Version, change.Version)
			}
			if err := w.tellOf(ctx, change); err != nil {
				return err
			}
			w.from = change.Version
		}
		if batch.Version < w.from || batch.More && batch.Version == w.from && len(batch.Changes) == 0 {
			return w.store.wrong("it knows all changes up to version %d, where %d were known", batch.Version, w.from)
		}
		w.from, more = batch.Version, batch.More
	}
	return nil
}

// tellOf sends a change. The watch cache knows what was there before, and makes the type of its
// events of that.
func (w *watcher[T, PT]) tellOf(ctx context.Context, c keep.Change[T]) error {
	e := watch.Event{Type: watch.Modified}
	w.store.broken.is(ctx, c.Key, c.Broken)
	o := PT(c.Object)
	if o == nil || c.Broken != nil {
		e.Type = watch.Deleted
		o = new(T)
		o.SetNamespace(c.Key.Namespace)
		o.SetName(c.Key.Name)
		c.Object = o
	}
	if !w.in.has(c.Key) {
		return nil
	}
	o, err := w.store.object(keep.Item[T]{Object: c.Object, Version: c.Version})
	if err != nil {
		return err
	}
	e.Object = o
	w.send(ctx, e)
	return nil
}

// tell logs an error once.
func (w *watcher[T, PT]) tell(ctx context.Context, err error) {
	said := ""
	if err != nil {
		said = err.Error()
	}
	if said != "" && said != w.told && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "What keeps the objects of a resource failed", "resource", w.store.Resource)
	}
	w.told = said
}
