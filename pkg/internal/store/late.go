package store

import (
	"context"
	"math"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// late is a store that gets its watch cache when it is first listed or watched.
// A cache is 18 goroutines and some 100 KiB before it has an object, and most
// CRDs of a server have no controller that runs.
type late struct {
	storage.Interface // the store without a cache
	spec              *spec
	open              func() (*waiting, func(), error)

	made atomic.Pointer[waiting] // nil before

	mu    sync.Mutex
	close func()
	ended bool
	// floor is the resource version from which on the cache has all events.
	floor atomic.Uint64 // 0: not known yet
}

// now is the cache, if there is one, or else the store.
func (l *late) now() storage.Interface {
	if w := l.made.Load(); w != nil {
		return w
	}
	return l.Interface
}

// use returns the cache. One that could not be made is tried again.
func (l *late) use() (*waiting, error) {
	if w := l.made.Load(); w != nil {
		return w, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.made.Load(); w != nil {
		return w, nil
	}
	if l.ended {
		return nil, endedError{}
	}
	w, stop, err := l.open()
	if err != nil {
		return nil, err
	}
	l.close = stop
	l.made.Store(w)
	return w, nil
}

// stop ends the cache.
func (l *late) stop() {
	l.mu.Lock()
	stop := l.close
	l.close, l.ended = nil, true
	l.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// Get implements storage.Interface.
func (l *late) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	return l.now().Get(ctx, key, opts, out)
}

// Delete implements storage.Interface.
//
//nolint:revive // the parameters are storage.Interface's
func (l *late) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	return l.now().Delete(ctx, key, out, preconditions, validate, cached, opts)
}

// GuaranteedUpdate implements storage.Interface.
//
//nolint:revive // the parameters are storage.Interface's
func (l *late) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cached runtime.Object,
) error {
	return l.now().GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, tryUpdate, cached)
}

// ReadinessCheck implements storage.Interface. A cache that nobody uses keeps
// nobody waiting.
func (l *late) ReadinessCheck() error { return l.now().ReadinessCheck() }

// CompactRevision implements storage.Interface.
func (l *late) CompactRevision() int64 { return l.now().CompactRevision() }

// GetList implements storage.Interface.
func (l *late) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	w, err := l.use()
	if err != nil {
		return err
	}
	if w.wait(ctx) {
		l.since(ctx, w)
		return w.Interface.GetList(ctx, key, opts, list)
	}
	return l.Interface.GetList(ctx, key, opts, list)
}

// Watch implements storage.Interface. Who wants events that happened before the
// cache was made, as after a write whose answer is watched from, gets them from
// the storage: the cache would say that they are gone.
func (l *late) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	w, err := l.use()
	if err != nil {
		return nil, err
	}
	floor := uint64(math.MaxUint64) // a cache that is not filled may yet begin after any event
	if w.wait(ctx) {
		floor = l.since(ctx, w)
	}
	if l.isBefore(floor, opts) {
		opts.ProgressNotify = opts.Predicate.AllowWatchBookmarks
		return l.Interface.Watch(ctx, key, opts)
	}
	return w.Interface.Watch(ctx, key, opts)
}

// isBefore tells whether a watch is to begin with events that are older than the floor.
func (l *late) isBefore(floor uint64, opts storage.ListOptions) bool {
	if opts.SendInitialEvents != nil && *opts.SendInitialEvents {
		return false // with what there is now
	}
	from, err := l.Versioner().ParseResourceVersion(opts.ResourceVersion)
	return err == nil && from != 0 && from < floor
}

// since returns the resource version from which on a filled cache has all events,
// or the highest there is when the cache does not say. It is asked before the cache
// first answers anybody, so that who watches from what a list says is served from
// the cache.
func (l *late) since(ctx context.Context, w *waiting) uint64 {
	if floor := l.floor.Load(); floor != 0 {
		return floor
	}
	list := l.spec.cache.NewListFunc()
	everything := storage.ListOptions{ResourceVersion: "0", Recursive: true, Predicate: storage.Everything}
	if err := w.cacher.GetList(ctx, l.spec.cache.ResourcePrefix, everything, list); err != nil {
		return math.MaxUint64
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return math.MaxUint64
	}
	floor, err := l.Versioner().ParseResourceVersion(m.GetResourceVersion())
	if err != nil {
		return math.MaxUint64
	}
	l.floor.CompareAndSwap(0, floor)
	return l.floor.Load()
}
