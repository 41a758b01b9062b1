package store

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/internal/upstream"
)

const (
	// eventBytes is what an event takes beside its objects: its attributes, and its
	// part of the tree of keys.
	eventBytes = 1 << 10
	// restBytes is what a cache keeps of events that the storage has forgotten: a
	// watch of what changes seldom goes on after hours.
	restBytes = 256 << 10
)

// History bounds what the watch caches of a server keep of the past, in bytes: the
// objects that were replaced or deleted, as they are in memory. When it is full, the
// caches with the most of it drop their oldest events, so that no resource takes the
// history of others. A watch from before what is kept gets 410, and lists again.
type History struct {
	limit int64

	mu    sync.Mutex
	bytes int64
	pasts map[*past]struct{}

	unbounded sync.Once // logs
}

// NewHistory returns one that may have so many bytes.
func NewHistory(limit int64) *History { return &History{limit: limit, pasts: map[*past]struct{}{}} }

// Bytes is how much the watch caches keep of the past.
func (h *History) Bytes() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.bytes
}

// past is what one watch cache keeps.
type past struct {
	all   *History
	cache *upstream.CacheHistory

	reading sync.Mutex
	next    int // the number of the event that is read next

	// The lock of the History guards the rest: the events that were read and are
	// kept, the number of the first of them, and their bytes.
	events []pastEvent
	first  int
	bytes  int64
}

type pastEvent struct {
	version uint64
	bytes   int64
}

// add takes in a cache. It returns nil when there is nothing to bound: with another
// version of k8s.io/apiserver in the program, which has its history elsewhere, the server
// works, and its history has no bound in bytes.
func (h *History) add(c *cacher.Cacher) *past {
	if h == nil {
		return nil
	}
	cache, err := upstream.NewCacheHistory(c)
	if err != nil {
		h.unbounded.Do(func() {
			klog.Background().Error(err, "The history of watches has no bound in bytes, so large updates can take much memory: "+
				"use the version of k8s.io/apiserver that this version of Sailplane requires")
		})
		return nil
	}
	p := &past{all: h, cache: cache}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pasts[p] = struct{}{}
	return p
}

// remove forgets a cache.
func (h *History) remove(p *past) {
	if p == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.pasts, p)
	h.bytes -= p.bytes
	p.events, p.bytes = nil, 0
}

// read counts the events that are new in the cache, and makes room for them. A cache
// calls it before each event, so it finds the event before.
func (p *past) read() {
	p.reading.Lock()
	defer p.reading.Unlock()
	found, first, next := p.cache.Since(p.next)
	if len(found) == 0 && next == p.next {
		return
	}
	events := make([]pastEvent, len(found))
	for i, e := range found {
		events[i] = pastEvent{e.Version, eventBytes + replaced(e)}
	}
	p.next = next
	for _, d := range p.all.take(p, events, first, next) {
		d.past.cache.Drop(d.before)
	}
}

// replaced is how many bytes of an event only the history has: what the event made is
// in the cache anyway.
func replaced(e upstream.CacheEvent) int64 {
	var n int64
	if e.Previous != nil {
		n = sizeOf(e.Previous)
	}
	if e.Deleted {
		n += sizeOf(e.Object)
	}
	return n
}

// drop is what a cache has to drop: all before an event.
type drop struct {
	past   *past
	before int
}

// take counts the newest events of a cache, which has those from first to before next.
// It returns what has to be dropped.
func (h *History) take(p *past, events []pastEvent, first, next int) []drop {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.pasts[p]; !ok {
		return nil
	}
	p.forget(first) // what the cache dropped itself
	if len(p.events) == 0 {
		p.first = next - len(events)
	}
	for _, e := range events {
		p.bytes += e.bytes
		h.bytes += e.bytes
	}
	p.events = append(p.events, events...)
	if h.bytes <= h.limit {
		return nil
	}
	return h.shrink(h.limit - h.limit/8)
}

// shrink forgets the oldest events of the largest caches until the rest fits.
func (h *History) shrink(target int64) []drop {
	sizes := make([]int64, 0, len(h.pasts))
	for p := range h.pasts {
		sizes = append(sizes, p.bytes)
	}
	share := shareOf(sizes, target)
	var drops []drop
	for p := range h.pasts {
		if p.bytes <= share {
			continue
		}
		n, rest := p.first, p.bytes
		for _, e := range p.events[:len(p.events)-1] { // the cache keeps the newest
			if rest <= share {
				break
			}
			rest -= e.bytes
			n++
		}
		p.forget(n)
		drops = append(drops, drop{p, n})
	}
	return drops
}

// shareOf returns how much each may keep at most, so that all together keep the
// target.
func shareOf(sizes []int64, target int64) int64 {
	slices.Sort(sizes)
	for i, size := range sizes {
		if share := target / int64(len(sizes)-i); size > share {
			return share
		}
		target -= size
	}
	return math.MaxInt64
}

// forget stops counting events before a number. The caller holds the lock.
func (p *past) forget(before int) {
	n := min(max(before-p.first, 0), len(p.events))
	for _, e := range p.events[:n] {
		p.bytes -= e.bytes
		p.all.bytes -= e.bytes
	}
	p.first += n
	p.events = p.events[n:]
	if cap(p.events) > 2*len(p.events)+1024 {
		p.events = slices.Clone(p.events)
	}
}

// expire drops events of which the storage keeps no history, but for the newest.
func (p *past) expire(revision uint64) {
	p.read()
	p.all.mu.Lock()
	n, rest := p.first, p.bytes
	for i, e := range p.events {
		if e.version > revision || rest <= restBytes || i == len(p.events)-1 {
			break
		}
		rest -= e.bytes
		n++
	}
	p.forget(n)
	p.all.mu.Unlock()
	p.cache.Drop(n)
}

// latePast is the past of a cache, from when there is one: the cache calls before.
type latePast struct{ atomic.Pointer[past] }

// watched reads the attributes of an object, as a cache does once for each event.
func (l *latePast) watched(attributes storage.AttrFunc) storage.AttrFunc {
	return func(object runtime.Object) (labels.Set, fields.Set, error) {
		if p := l.Load(); p != nil {
			p.read()
		}
		return attributes(object)
	}
}

// expiring is the store that a cache is filled from. The cache asks it every 15 s since
// when it has history.
type expiring struct {
	storage.Interface
	past *latePast
	// lists says that the store has no watches that begin with the present objects: the cache
	// lists them.
	lists bool
}

// IsWatchListSemanticsUnSupported is what the cache asks.
func (e expiring) IsWatchListSemanticsUnSupported() bool { return e.lists }

// CompactRevision implements storage.Interface.
func (e expiring) CompactRevision() int64 {
	revision := e.Interface.CompactRevision()
	if p := e.past.Load(); p != nil && revision > 0 {
		p.expire(uint64(revision))
	}
	return revision
}
