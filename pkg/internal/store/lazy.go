package store

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"

	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
	"github.com/sailplane-dev/sailplane/pkg/internal/source"
	"github.com/sailplane-dev/sailplane/pkg/internal/stack"
)

// lazy is the store of a resource whose watch cache is made when the resource is
// first listed or watched, or when the server is ready and there are many objects.
// An empty cache is 18 goroutines and some 100 KiB, and most resources are never
// listed.
//
// It waits for a cache that is being filled, where upstream refuses with a 429 and
// "Retry-After: 1" (KEP 4568).
type lazy struct {
	storage.Interface // without the cache
	resource          schema.GroupResource
	// open makes the cache.
	open func() (*cached, error)
	// begun is a resource version from which on all that was stored is of one history.
	begun func() uint64

	made atomic.Pointer[cached] // nil before
	// written is closed by the first write.
	written chan struct{}
	write   func()

	mu    sync.Mutex
	ended bool
}

// cached is a watch cache in front of the store.
type cached struct {
	storage.Interface
	cacher *cacher.Cacher
	stop   func()
	// floor is the resource version from which the cache has all events; 0: unknown.
	floor atomic.Uint64
}

func newLazy(s storage.Interface, r schema.GroupResource, begun func() uint64, open func() (*cached, error)) *lazy {
	l := &lazy{Interface: s, resource: r, open: open, begun: begun, written: make(chan struct{})}
	l.write = sync.OnceFunc(func() { close(l.written) })
	return l
}

// now returns the cache, if there is one, or else the store.
func (l *lazy) now() storage.Interface {
	if c := l.made.Load(); c != nil {
		return c
	}
	return l.Interface
}

// use returns the cache. After a failure the next call tries again.
func (l *lazy) use() (*cached, error) {
	if c := l.made.Load(); c != nil {
		return c, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.made.Load(); c != nil {
		return c, nil
	}
	if l.ended {
		return nil, source.ErrClosed
	}
	c, err := l.open()
	if err == nil {
		l.made.Store(c)
	}
	return c, err
}

// stop ends the cache.
func (l *lazy) stop() {
	l.mu.Lock()
	c, ended := l.made.Load(), l.ended
	l.ended = true
	l.mu.Unlock()
	if c != nil && !ended {
		c.stop()
	}
}

// Create implements storage.Interface. It runs in a goroutine of the write's own.
func (l *lazy) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	stack.Reserve()
	l.write()
	return l.Interface.Create(ctx, key, obj, out, ttl)
}

// GuaranteedUpdate implements storage.Interface. It runs in a goroutine of the
// write's own, and calls back to the function that decides on the change.
//
//nolint:revive // the parameters are storage.Interface's
func (l *lazy) GuaranteedUpdate(
	ctx context.Context, key string, into runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, try storage.UpdateFunc, cached runtime.Object,
) error {
	stack.Reserve()
	l.write()
	return l.now().GuaranteedUpdate(ctx, key, into, ignoreNotFound, preconditions, try, cached)
}

// Delete implements storage.Interface.
//
//nolint:revive // the parameters are storage.Interface's
func (l *lazy) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	return l.now().Delete(ctx, key, out, preconditions, validate, cached, opts)
}

// Get implements storage.Interface.
func (l *lazy) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	return l.now().Get(ctx, key, opts, out)
}

// ReadinessCheck implements storage.Interface. A cache that nobody uses keeps
// nobody waiting.
func (l *lazy) ReadinessCheck() error { return l.now().ReadinessCheck() }

// CompactRevision implements storage.Interface.
func (l *lazy) CompactRevision() int64 { return l.now().CompactRevision() }

// GetList waits for the cache, then lists. If the cache is still not filled it
// lists from the storage, which answers, or says what is wrong, at once.
func (l *lazy) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	c, err := l.use()
	if err != nil {
		return err
	}
	if !c.wait(ctx) {
		return l.Interface.GetList(ctx, key, opts, list)
	}
	return c.GetList(ctx, key, opts, list)
}

// Watch waits for the cache, then watches. A cache that is still not filled answers
// 429 and names what is wrong. A watch from before the cache began, such as from the
// resource version of a write, or of a client of a server that was restarted, begins
// with what the storage has: the cache would say that its events are gone.
func (l *lazy) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	c, err := l.use()
	if err != nil {
		return nil, err
	}
	floor := uint64(math.MaxUint64) // a cache that is not filled may still begin after any event
	if c.wait(ctx) {
		floor = c.floor.Load()
	}
	if l.isBetween(floor, opts) {
		return l.catchUp(ctx, c, key, opts)
	}
	return resumed(ctx, opts, resumable{
		open: func(opts storage.ListOptions) (watch.Interface, error) { return c.Watch(ctx, key, opts) },
		now: func() (uint64, error) {
			ctx, cancel := context.WithTimeout(ctx, cacheWait)
			defer cancel()
			return l.GetCurrentResourceVersion(ctx)
		},
	})
}

// catchUp watches the storage until that is where the cache began, and then the cache: one watch of
// the storage is for all clients again.
func (l *lazy) catchUp(ctx context.Context, c *cached, key string, opts storage.ListOptions) (watch.Interface, error) {
	behind := true
	reached := func(version uint64) bool {
		floor := c.floor.Load()
		return floor > 0 && version >= floor
	}
	w, err := resumed(ctx, opts, resumable{
		passed: func(version uint64) bool { return behind && reached(version) },
		open: func(opts storage.ListOptions) (watch.Interface, error) {
			from, err := l.Versioner().ParseResourceVersion(opts.ResourceVersion)
			if err != nil {
				return nil, err
			}
			if behind = !reached(from); !behind {
				return c.Watch(ctx, key, opts)
			}
			opts.ProgressNotify = true // it may have come there without an event
			return l.Interface.Watch(ctx, key, opts)
		},
	})
	if err != nil || opts.Predicate.AllowWatchBookmarks {
		return w, err
	}
	return watch.Filter(w, func(e watch.Event) (watch.Event, bool) { return e, e.Type != watch.Bookmark }), nil
}

// isBetween tells whether a watch begins with events that are older than the floor of the cache, and
// that the storage may have.
func (l *lazy) isBetween(floor uint64, opts storage.ListOptions) bool {
	if opts.SendInitialEvents != nil && *opts.SendInitialEvents {
		return false // it begins with the present objects
	}
	from, err := l.Versioner().ParseResourceVersion(opts.ResourceVersion)
	return err == nil && from != 0 && from >= l.begun() && from < floor
}

// cacheWait bounds how long a request waits for a watch cache that is being filled.
// The cache of an empty resource takes a millisecond; a longer wait means many
// objects, or a storage or conversion webhook in trouble.
const cacheWait = time.Second

// wait returns whether the cache is filled. It sets the floor before the cache
// first answers, so that a watch from a list's resource version is served from the
// cache.
func (c *cached) wait(ctx context.Context) bool {
	if c.floor.Load() != 0 {
		return c.cacher.Ready() || c.filled(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, cacheWait)
	defer cancel()
	if c.cacher.Wait(ctx) != nil {
		return false
	}
	// A cache is filled a moment before it knows from which version on.
	err := wait.PollUntilContextCancel(ctx, time.Millisecond, true, func(context.Context) (bool, error) {
		floor, err := c.cacher.LastSyncResourceVersion()
		if err != nil || floor == 0 {
			return false, err
		}
		c.floor.CompareAndSwap(0, floor)
		return true, nil
	})
	return err == nil
}

func (c *cached) filled(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, cacheWait)
	defer cancel()
	return c.cacher.Wait(ctx) == nil
}

// many is the number of objects from which a cache is filled when the server is
// ready, and not by the first list, which would have to wait.
const many = 1000

// Fill makes the caches of unused resources with many objects. Call it when the
// server is ready; it returns when the context ends or all are filled.
func (b *Stores) Fill(ctx context.Context) {
	for _, l := range b.all() {
		if l.made.Load() != nil {
			continue
		}
		r, ok := l.Interface.(*readable)
		if !ok {
			continue
		}
		if n, err := r.count(ctx); err != nil || n < many {
			continue // the first list gets the error
		}
		if c, err := l.use(); err == nil {
			_ = c.cacher.Wait(ctx) // one after the other
		}
	}
}

// Caches are the resources whose caches are made.
func (b *Stores) Caches() []schema.GroupResource {
	var made []schema.GroupResource
	for _, l := range b.all() {
		if l.made.Load() != nil {
			made = append(made, l.resource)
		}
	}
	return made
}

// FirstWrite returns a channel that is closed by the first write of a resource, and
// the revision up to which it has no objects; nil if it has some, or others may
// write it.
func (b *Stores) FirstWrite(ctx context.Context, resource schema.GroupResource) (written <-chan struct{}, revision int64, err error) {
	if b.Shared {
		return nil, 0, nil
	}
	for _, l := range b.all() {
		if r, ok := l.Interface.(*readable); ok && l.resource == resource {
			found, err := r.client.KV.Get(ctx, b.space().Range(resource), clientv3.WithPrefix(), clientv3.WithCountOnly())
			if err != nil || found.Count > 0 || signal.Closed(l.written) {
				return nil, 0, err
			}
			return l.written, found.Header.Revision, nil
		}
	}
	return nil, 0, nil
}
