package upstream

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// CacheSource is the store that a watch cache is filled from. A cache that stops
// while more than a hundred events are under way waits for itself: for the
// goroutine that fills its queue, when the one that empties it has ended
// (https://github.com/kubernetes/apiserver/blob/v0.37.2/pkg/storage/cacher/cacher.go#L896).
// So its source ends first.
type CacheSource struct {
	storage.Interface
	handled atomic.Int64

	mu    sync.Mutex
	watch watch.Interface
	ended bool
	back  chan struct{} // closed when the cache asks after the end
}

// NewCacheSource returns the source of one watch cache.
func NewCacheSource(s storage.Interface) *CacheSource {
	return &CacheSource{Interface: s, back: make(chan struct{})}
}

// queue is how many events a watch cache has room for.
const queue = 100

// lastEvents is how long a cache may take for the events under way.
const lastEvents = time.Second

// Count wraps the cache's key function, which it calls for every object it takes in.
func (s *CacheSource) Count(key func(runtime.Object) (string, error)) func(runtime.Object) (string, error) {
	return func(obj runtime.Object) (string, error) {
		s.handled.Add(1)
		return key(obj)
	}
}

// End stops the flow of events and waits until the cache has taken in those under
// way. The cache then asks for more.
func (s *CacheSource) End() {
	s.mu.Lock()
	s.ended = true
	w := s.watch
	s.mu.Unlock()
	if w == nil {
		return
	}
	w.Stop()
	if s.handled.Load() < queue/2 {
		return // there is room for all: a cache that had no event takes a second to ask again
	}
	select {
	case <-s.back:
	case <-time.After(lastEvents):
	}
}

// Watch implements storage.Interface. The cache has one watch at a time.
func (s *CacheSource) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	if s.isEnded() {
		// After this error the cache tries again, without a log message.
		return nil, apierrors.NewTooManyRequestsError("the store is stopping")
	}
	w, err := s.Interface.Watch(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watch = w
	if s.ended {
		w.Stop()
	}
	return w, nil
}

// isEnded tells whether the events have ended, and tells End that the cache asked.
func (s *CacheSource) isEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		return false
	}
	select {
	case <-s.back:
	default:
		close(s.back)
	}
	return true
}
