package etcdapi

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
)

// notifyInterval is how often a watch that asked for progress and saw no event
// hears of it: what Kubernetes asks of etcd.
const notifyInterval = 5 * time.Second

// hub hands every change to the watches it concerns. A change costs what listens
// to it: watches are found by their key, their prefix or, for the few that have
// neither, their span.
type hub struct {
	log  revision.Log
	stop chan struct{} // closed when no watch gets anything any more

	mu sync.Mutex
	// revision is that up to which every change was handed on.
	revision int64
	keys     map[string]group         // watches of one key
	prefixes map[int]map[string]group // of a prefix, by its length
	lengths  []int                    // the keys of prefixes, in order
	spans    group                    // the other ones
	expiry   *expiry
}

// group are watches of the same span.
type group map[*watch]struct{}

func newHub() *hub {
	return &hub{
		stop: make(chan struct{}), keys: map[string]group{}, prefixes: map[int]map[string]group{}, spans: group{},
		expiry: newExpiry(),
	}
}

// follow is a revision.Follower.
func (h *hub) follow(events []*revision.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range events {
		h.revision = e.KV.Mod
		h.each(e.KV.Key, func(w *watch) { w.offer(e) })
	}
	h.expiry.follow(events)
}

// lag is how many revisions the watch is behind that is most behind.
func (h *hub) lag() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	var most int64
	h.all(func(w *watch) {
		switch {
		case len(w.queue) > 0:
			most = max(most, h.revision-w.queue[0].KV.Mod+1)
		case !w.live:
			most = max(most, h.revision-w.next+1)
		}
	})
	return most
}

// each calls f with the watches of a key. The caller holds the lock.
func (h *hub) each(key string, f func(*watch)) {
	for w := range h.keys[key] {
		f(w)
	}
	for _, n := range h.lengths {
		if n > len(key) {
			break
		}
		for w := range h.prefixes[n][key[:n]] {
			f(w)
		}
	}
	for w := range h.spans {
		if w.span.Has(key) {
			f(w)
		}
	}
}

// all calls f with every watch. The caller holds the lock.
func (h *hub) all(f func(*watch)) {
	for _, g := range h.keys {
		for w := range g {
			f(w)
		}
	}
	for _, prefixes := range h.prefixes {
		for _, g := range prefixes {
			for w := range g {
				f(w)
			}
		}
	}
	for w := range h.spans {
		f(w)
	}
}

// add has a watch hear of what happens from now on. The caller holds the lock.
func (h *hub) add(w *watch) {
	switch {
	case w.span.End == "":
		join(h.keys, w.span.Key, w)
	case w.span.End == prefixEnd(w.span.Key):
		n := len(w.span.Key)
		if h.prefixes[n] == nil {
			h.prefixes[n] = map[string]group{}
			h.lengths = slices.Sorted(maps.Keys(h.prefixes))
		}
		join(h.prefixes[n], w.span.Key, w)
	default:
		h.spans[w] = struct{}{}
	}
}

// remove undoes add.
func (h *hub) remove(w *watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.spans, w)
	leave(h.keys, w.span.Key, w)
	n := len(w.span.Key)
	leave(h.prefixes[n], w.span.Key, w)
	if prefixes, ok := h.prefixes[n]; ok && len(prefixes) == 0 {
		delete(h.prefixes, n)
		h.lengths = slices.Sorted(maps.Keys(h.prefixes))
	}
}

func join(groups map[string]group, key string, w *watch) {
	if groups[key] == nil {
		groups[key] = group{}
	}
	groups[key][w] = struct{}{}
}

func leave(groups map[string]group, key string, w *watch) {
	g, ok := groups[key]
	if !ok {
		return
	}
	if delete(g, w); len(g) == 0 {
		delete(groups, key)
	}
}

// prefixEnd is the end of the span of all keys with a prefix, as
// clientv3.GetPrefixRangeEnd has it.
func prefixEnd(prefix string) string {
	for i := len(prefix) - 1; i >= 0; i-- {
		if c := prefix[i]; c < 0xff {
			return prefix[:i] + string([]byte{c + 1})
		}
	}
	return revision.NoEnd
}

// notify tells idle watches that asked for it how far they are, until the end.
func (h *hub) notify() {
	tick := time.NewTicker(notifyInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-h.stop:
			return
		}
		h.mu.Lock()
		h.all(func(w *watch) {
			if w.options.progress && !w.busy {
				w.ask(1)
			}
			w.busy = false
		})
		h.mu.Unlock()
	}
}
