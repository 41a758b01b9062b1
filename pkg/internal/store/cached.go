package store

import (
	"context"
	"math"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"

	"github.com/sailplane-dev/sailplane/pkg/internal/source"
)

// Cached puts before a store that is none of etcd's what the stores of this package have before
// them: a watch cache that is made when the resource is first listed or watched, and the filters
// of requests. The cache ends some time after the last list or watch, so that nobody asks the
// store what changed while nobody wants to know. history may be nil. The store is config.Storage,
// and tells last how recent its watches are.
func Cached(config cacher.Config, history *History, last *source.Last) (s storage.Interface, destroy func()) {
	s0 := &spec{cache: config}
	// No version is known to be of this server, and older than the cache.
	begun := func() uint64 { return math.MaxUint64 }
	open := func() (*cached, error) { return s0.open(config.Storage, history) }
	r := &resting{Interface: config.Storage, last: last, lazily: source.Shared[*lazy]{
		Open: func() (*lazy, error) {
			last.Forget()
			return newLazy(config.Storage, config.GroupResource, begun, open), nil
		},
		Close: (*lazy).stop, Rest: last.Rest(),
	}}
	r.plain = newLazy(config.Storage, config.GroupResource, begun, func() (*cached, error) { return nil, source.ErrClosed })
	filtered := &filtering{Interface: r, resource: config.GroupResource, newList: config.NewListFunc, sizes: &sizes{}}
	return filtered, sync.OnceFunc(r.lazily.End)
}

// resting is a store whose watch cache ends some time after its last list or watch. A version from
// before the next cache is answered with 410 then, as one that is too old.
type resting struct {
	storage.Interface // without the cache

	last   *source.Last
	lazily source.Shared[*lazy]
	plain  *lazy // which makes no cache
}

// now returns the store with the cache, if there is one, until done is called.
func (r *resting) now() (l *lazy, done func()) {
	if l, done, found := r.lazily.Peek(); found {
		return l, done
	}
	return r.plain, func() {}
}

// Create implements storage.Interface.
func (r *resting) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	return r.plain.Create(ctx, key, obj, out, ttl)
}

// GuaranteedUpdate implements storage.Interface.
//
//nolint:revive // the parameters are storage.Interface's
func (r *resting) GuaranteedUpdate(
	ctx context.Context, key string, into runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, try storage.UpdateFunc, cached runtime.Object,
) error {
	l, done := r.now()
	defer done()
	return l.GuaranteedUpdate(ctx, key, into, ignoreNotFound, preconditions, try, cached)
}

// Delete implements storage.Interface.
//
//nolint:revive // the parameters are storage.Interface's
func (r *resting) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	l, done := r.now()
	defer done()
	return l.Delete(ctx, key, out, preconditions, validate, cached, opts)
}

// toRead is as now. If the last good answer may have to do for a client, there is a cache.
func (r *resting) toRead() (l *lazy, done func(), err error) {
	if r.last.Stale == 0 {
		l, done = r.now()
		return l, done, nil
	}
	if l, done, err = r.lazily.Use(); err != nil {
		return nil, nil, err
	}
	if _, err := l.use(); err != nil {
		done()
		return nil, nil, err
	}
	return l, done, nil
}

// version is the one to read at: while the store fails, the cache does not tell what it has
// without a word.
func (r *resting) version(asked string) string {
	if asked == "0" && r.last.Problem() != nil {
		return ""
	}
	return asked
}

// Get implements storage.Interface.
func (r *resting) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	l, done, err := r.toRead()
	if err != nil {
		return err
	}
	defer done()
	opts.ResourceVersion = r.version(opts.ResourceVersion)
	err = l.Get(ctx, key, opts, out)
	if c := l.made.Load(); c != nil && c.Instead(ctx, r.last, opts.ResourceVersion, "", err) {
		return c.LastGet(ctx, key, opts, out)
	}
	return err
}

// GetList implements storage.Interface.
func (r *resting) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	l, done, err := r.lazily.Use()
	if err != nil {
		return err
	}
	defer done()
	if opts.ResourceVersion = r.version(opts.ResourceVersion); opts.ResourceVersion == "" {
		opts.ResourceVersionMatch = ""
	}
	err = l.GetList(ctx, key, opts, list)
	if c := l.made.Load(); c != nil && c.Instead(ctx, r.last, opts.ResourceVersion, opts.Predicate.Continue, err) {
		return c.LastList(ctx, key, opts, list)
	}
	return err
}

// Watch implements storage.Interface. The cache is used until the watch is stopped.
func (r *resting) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	l, done, err := r.lazily.Use()
	if err != nil {
		return nil, err
	}
	w, err := l.Watch(ctx, key, opts)
	if err != nil {
		done()
		return nil, err
	}
	return source.Watch(w, done), nil
}

// ReadinessCheck implements storage.Interface.
func (r *resting) ReadinessCheck() error {
	l, done := r.now()
	defer done()
	return l.ReadinessCheck()
}

// CompactRevision implements storage.Interface.
func (r *resting) CompactRevision() int64 {
	l, done := r.now()
	defer done()
	return l.CompactRevision()
}
