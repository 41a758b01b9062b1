package store

import (
	"context"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// late is a store that gets its watch cache when it is first listed or watched.
// A cache is 18 goroutines and some 100 KiB before it has an object, and most
// CRDs of a server have no controller that runs.
type late struct {
	storage.Interface // the store without a cache
	open              func() (*waiting, func(), error)

	made atomic.Pointer[waiting] // nil before

	mu    sync.Mutex
	close func()
	ended bool
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
	return w.GetList(ctx, key, opts, list)
}

// Watch implements storage.Interface.
func (l *late) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	w, err := l.use()
	if err != nil {
		return nil, err
	}
	return w.Watch(ctx, key, opts)
}
