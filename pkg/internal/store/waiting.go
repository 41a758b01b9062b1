package store

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"

	"github.com/sailplane-dev/sailplane/pkg/internal/stack"
)

// cacheWait bounds how long a request waits for a watch cache that is being
// filled. The cache of an empty resource takes a millisecond; what takes longer
// is many objects, or a storage or conversion webhook in trouble.
const cacheWait = time.Second

// waiting waits for a watch cache to be filled where upstream refuses with a 429
// and "Retry-After: 1" (KEP 4568), which costs every client a second after a
// CRD was created. One replica serves the plane, so nobody else can answer sooner.
type waiting struct {
	storage.Interface
	cacher *cacher.Cacher
	raw    storage.Interface
	spec   *spec
	held   *held
	isLate bool // made when it was first used

	// floor is the resource version from which on the cache has all events.
	floor atomic.Uint64 // 0: not known yet
}

// GetList waits for the cache, then lists; from the storage when the cache is
// still not filled, which answers, or tells what is wrong, at once.
func (w *waiting) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	if !w.wait(ctx) {
		return w.raw.GetList(ctx, key, opts, list)
	}
	if w.beginsMidway() {
		w.since(ctx)
	}
	return w.Interface.GetList(ctx, key, opts, list)
}

// ReadinessCheck implements storage.Interface. A cache that is held back keeps
// nobody waiting.
func (w *waiting) ReadinessCheck() error {
	if w.held.isBack() {
		return w.raw.ReadinessCheck()
	}
	return w.Interface.ReadinessCheck()
}

// Create stores a new object. It runs in a goroutine of the write's own.
func (w *waiting) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	stack.Reserve()
	return w.Interface.Create(ctx, key, obj, out, ttl)
}

// GuaranteedUpdate changes an object. It runs in a goroutine of the write's own,
// and calls back to whatever decides on the change.
//
//nolint:revive // the parameters are storage.Interface's
func (w *waiting) GuaranteedUpdate(
	ctx context.Context, key string, into runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, try storage.UpdateFunc, cached runtime.Object,
) error {
	stack.Reserve()
	return w.Interface.GuaranteedUpdate(ctx, key, into, ignoreNotFound, preconditions, try, cached)
}

// Watch waits for the cache, then watches. A cache that is still not filled
// answers 429 and names what is wrong. Who wants events that happened before the
// cache began, as after a write whose answer is watched from, gets them from the
// storage: the cache would say that they are gone.
func (w *waiting) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	filled := w.wait(ctx)
	if !w.beginsMidway() {
		return w.Interface.Watch(ctx, key, opts)
	}
	floor := uint64(math.MaxUint64) // a cache that is not filled may yet begin after any event
	if filled {
		floor = w.since(ctx)
	}
	if w.isBefore(floor, opts) {
		opts.ProgressNotify = opts.Predicate.AllowWatchBookmarks
		return w.raw.Watch(ctx, key, opts)
	}
	return w.Interface.Watch(ctx, key, opts)
}

// beginsMidway tells whether requests were served before the cache began.
func (w *waiting) beginsMidway() bool { return w.isLate || closed(w.held.back) }

// isBefore tells whether a watch is to begin with events that are older than the floor.
func (w *waiting) isBefore(floor uint64, opts storage.ListOptions) bool {
	if opts.SendInitialEvents != nil && *opts.SendInitialEvents {
		return false // with what there is now
	}
	from, err := w.Versioner().ParseResourceVersion(opts.ResourceVersion)
	return err == nil && from != 0 && from < floor
}

// since returns the resource version from which on a filled cache has all events,
// or the highest there is when the cache does not say. It is asked before the cache
// first answers anybody, so that who watches from what a list says is served from
// the cache.
func (w *waiting) since(ctx context.Context) uint64 {
	if floor := w.floor.Load(); floor != 0 {
		return floor
	}
	list := w.spec.cache.NewListFunc()
	everything := storage.ListOptions{ResourceVersion: "0", Recursive: true, Predicate: storage.Everything}
	if err := w.cacher.GetList(ctx, w.spec.cache.ResourcePrefix, everything, list); err != nil {
		return math.MaxUint64
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return math.MaxUint64
	}
	floor, err := w.Versioner().ParseResourceVersion(m.GetResourceVersion())
	if err != nil {
		return math.MaxUint64
	}
	w.floor.CompareAndSwap(0, floor)
	return w.floor.Load()
}

// wait returns whether the cache is filled.
func (w *waiting) wait(ctx context.Context) bool {
	if w.cacher.Ready() {
		return true
	}
	w.held.want()
	ctx, cancel := context.WithTimeout(ctx, cacheWait)
	defer cancel()
	return w.cacher.Wait(ctx) == nil
}
