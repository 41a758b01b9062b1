package store

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// many is from how many objects on a watch cache is filled at the first list or
// watch, or when the server is ready, and not while it starts.
const many = 1000

// held is what a watch cache is filled from. It holds the cache back while nobody
// needs it, if there are many objects: a start reads them for nobody.
type held struct {
	storage.Interface
	count  func(context.Context) (int64, error)
	back   chan struct{} // closed when the cache is held back
	wanted chan struct{} // closed when it is filled whatever it takes
	ended  chan struct{}

	hold, want, end func()
}

func newHeld(s storage.Interface, count func(context.Context) (int64, error)) *held {
	h := &held{
		Interface: s, count: count,
		back: make(chan struct{}), wanted: make(chan struct{}), ended: make(chan struct{}),
	}
	h.hold = sync.OnceFunc(func() { close(h.back) })
	h.want = sync.OnceFunc(func() { close(h.wanted) })
	h.end = sync.OnceFunc(func() { close(h.ended) })
	return h
}

// isBack tells whether the cache is held back.
func (h *held) isBack() bool { return closed(h.back) && !closed(h.wanted) }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// await returns when the cache may be filled.
func (h *held) await(ctx context.Context) error {
	if closed(h.wanted) {
		return nil
	}
	if n, err := h.count(ctx); err != nil || n < many {
		h.want()   // from now on: a cache that was filled is never held back when it reads again
		return nil //nolint:nilerr // the list that follows says what is wrong with the storage
	}
	h.hold()
	select {
	case <-h.wanted:
		return nil
	case <-h.ended:
		return endedError{}
	}
}

// GetList implements storage.Interface.
func (h *held) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	if err := h.await(ctx); err != nil {
		return err
	}
	return h.Interface.GetList(ctx, key, opts, list)
}

// Watch implements storage.Interface.
func (h *held) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	if err := h.await(ctx); err != nil {
		return nil, err
	}
	return h.Interface.Watch(ctx, key, opts)
}
