package upstream

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"unsafe"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/cacher/store"
)

// CacheHistory is what a watch cache keeps of the past. Upstream bounds it in time and
// in number, not in bytes: up to 102,400 events, and never less than 100 however large
// and old they are, for each resource. It has no setting and exports nothing of it
// (https://github.com/kubernetes/apiserver/blob/v0.37.2/pkg/storage/cacher/watch_cache_history.go).
// So this reads the private fields, and drops events as upstream does when its buffer
// is full: with the cache's lock held, the oldest first. A watch that is older gets 410.
type CacheHistory struct {
	lock  *sync.RWMutex
	state *store.WatchCacheStorage
	// The events have numbers that only grow. Those from start to before end are
	// kept, each in the slot of its number modulo the number of slots.
	slots      *[]unsafe.Pointer
	start, end *int
	removed    *bool // tells the cache that it does not begin where its last list does

	kind, object, previous, version uintptr // where these fields of an event are
}

// CacheEvent is one event of a watch cache.
type CacheEvent struct {
	// Object is what the event made, or deleted. Previous is what it replaced, or nil.
	Object, Previous runtime.Object
	// Deleted tells that the object is gone.
	Deleted bool
	// Version is the resource version of the event.
	Version uint64
}

// NewCacheHistory returns the history of a cache. The error says which field is not
// where it was in the version of the library that this is made for.
func NewCacheHistory(c *cacher.Cacher) (*CacheHistory, error) {
	f := &fields{}
	cache := f.of(reflect.ValueOf(c), "watchCache")
	history, event := f.of(cache, "history"), reflect.Type(nil)
	slots := f.of(history, "cache")
	if f.err == nil {
		if slots.Kind() != reflect.Slice || slots.Type().Elem().Kind() != reflect.Pointer {
			return nil, errors.New("watch cache: its events are no list of pointers")
		}
		event = slots.Type().Elem().Elem()
	}
	h := &CacheHistory{
		lock:    pointer[sync.RWMutex](f, f.of(cache, "RWMutex")),
		slots:   (*[]unsafe.Pointer)(f.address(slots)),
		start:   pointer[int](f, f.of(history, "startIndex")),
		end:     pointer[int](f, f.of(history, "endIndex")),
		removed: pointer[bool](f, f.of(history, "removedEventSinceRelist")),
		kind:    offset[watch.EventType](f, event, "Type"), object: offset[runtime.Object](f, event, "Object"),
		previous: offset[runtime.Object](f, event, "PrevObject"), version: offset[uint64](f, event, "ResourceVersion"),
	}
	state := pointer[*store.WatchCacheStorage](f, f.of(cache, "storage"))
	if f.err != nil {
		return nil, fmt.Errorf("watch cache of k8s.io/apiserver: %w", f.err)
	}
	h.state = *state
	return h, nil
}

// Since returns the events with numbers from n on, and the numbers of the first one
// that is kept and of the next one that comes.
func (h *CacheHistory) Since(n int) (events []CacheEvent, first, next int) {
	h.lock.RLock()
	defer h.lock.RUnlock()
	for i := max(n, *h.start); i < *h.end; i++ {
		events = append(events, h.event(i))
	}
	return events, *h.start, *h.end
}

// Drop drops the events with numbers below n, but never the newest: without any, the
// cache could not tell what it has.
func (h *CacheHistory) Drop(n int) {
	h.lock.Lock()
	defer h.lock.Unlock()
	n = min(n, *h.end-1)
	if n <= *h.start {
		return
	}
	for ; *h.start < n; *h.start++ {
		(*h.slots)[*h.start%len(*h.slots)] = nil
	}
	*h.removed = true
	h.state.CompactSnapshotsLocked(h.event(n).Version)
}

// event returns an event that is kept. The caller holds the lock.
func (h *CacheHistory) event(n int) CacheEvent {
	p := (*h.slots)[n%len(*h.slots)]
	return CacheEvent{
		Object:   *(*runtime.Object)(unsafe.Add(p, h.object)),
		Previous: *(*runtime.Object)(unsafe.Add(p, h.previous)),
		Deleted:  *(*watch.EventType)(unsafe.Add(p, h.kind)) == watch.Deleted,
		Version:  *(*uint64)(unsafe.Add(p, h.version)),
	}
}

// fields finds fields of structs and keeps the first error.
type fields struct{ err error }

// of returns a field of the struct that v points to.
func (f *fields) of(v reflect.Value, name string) reflect.Value {
	if f.err != nil {
		return reflect.Value{}
	}
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Type().Elem().Kind() != reflect.Struct {
		f.err = fmt.Errorf("what has the field %s is no pointer to a struct", name)
		return reflect.Value{}
	}
	found := v.Elem().FieldByName(name)
	if !found.IsValid() {
		f.err = fmt.Errorf("%s has no field %s", v.Type(), name)
	}
	return found
}

func (f *fields) address(v reflect.Value) unsafe.Pointer {
	if f.err != nil {
		return nil
	}
	return v.Addr().UnsafePointer()
}

// pointer returns where a field is that has type T.
func pointer[T any](f *fields, v reflect.Value) *T {
	if f.err == nil && v.Type() != reflect.TypeFor[T]() {
		f.err = fmt.Errorf("a field has type %s, want %s", v.Type(), reflect.TypeFor[T]())
	}
	return (*T)(f.address(v))
}

// offset returns where in a struct a field is that has type T.
func offset[T any](f *fields, of reflect.Type, name string) uintptr {
	if f.err != nil {
		return 0
	}
	found, ok := of.FieldByName(name)
	if !ok || found.Type != reflect.TypeFor[T]() {
		f.err = fmt.Errorf("%s has no field %s of type %s", of, name, reflect.TypeFor[T]())
	}
	return found.Offset
}
