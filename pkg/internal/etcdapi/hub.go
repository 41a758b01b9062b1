package etcdapi

import (
	"context"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
)

// notifyInterval is how often a watch that asked for progress and saw no event gets
// it: Kubernetes asks the same of etcd.
const notifyInterval = 5 * time.Second

// hub hands every change to the watches it concerns. A change costs work only for
// its own watches: they are found by their key, their prefix or, for the few that
// have neither, their span.
type hub struct {
	log revision.Log

	mu sync.Mutex
	// revision is the last revision that was handed on.
	revision int64
	places   map[place]group
	lengths  []int // of all watched prefixes, in order
	spans    group // watches without a place
	expiry   *expiry
}

// place is a key or a prefix that watches are for.
type place struct {
	key      string
	isPrefix bool
}

// placeOf returns false for a span that is neither one key nor a prefix.
func placeOf(span revision.Span) (at place, ok bool) {
	at = place{key: span.Key, isPrefix: span.End != ""}
	return at, !at.isPrefix || span.End == clientv3.GetPrefixRangeEnd(span.Key)
}

// group are watches of the same span.
type group map[*watch]struct{}

func newHub() *hub {
	return &hub{places: map[place]group{}, spans: group{}, expiry: newExpiry()}
}

// begin has the hub begin at a revision, unless the log has told of later ones by now.
func (h *hub) begin(log revision.Log, current int64, expiring []*revision.KeyValue) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log, h.revision = log, max(h.revision, current)
	h.expiry.begin(expiring)
}

// follow is a revision.Follower.
func (h *hub) follow(after int64, events []*revision.Event, through int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if after > h.revision {
		h.all(func(w *watch) { w.behind() })
		signal.Wake(h.expiry.lost)
	}
	for _, e := range events {
		h.revision = max(h.revision, e.KV.Mod)
		h.each(e.KV.Key, func(w *watch) { w.offer(e) })
	}
	h.revision = max(h.revision, through)
	h.expiry.follow(events)
}

// lag is how many revisions the slowest watch is behind.
func (h *hub) lag(current int64) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	var most int64
	h.all(func(w *watch) {
		behind := current - h.revision
		switch {
		case len(w.queue) > 0:
			behind = current - w.queue[0].KV.Mod + 1
		case !w.live:
			behind = current - w.next + 1
		}
		most = max(most, behind)
	})
	return most
}

// each calls f with the watches of a key. The caller holds the lock.
func (h *hub) each(key string, f func(*watch)) {
	for w := range h.places[place{key: key}] {
		f(w)
	}
	for _, n := range h.lengths {
		if n > len(key) {
			break
		}
		for w := range h.places[place{key: key[:n], isPrefix: true}] {
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
	for _, g := range h.places {
		for w := range g {
			f(w)
		}
	}
	for w := range h.spans {
		f(w)
	}
}

// add gives a watch all events from now on. The caller holds the lock.
func (h *hub) add(w *watch) {
	at, ok := placeOf(w.span)
	if !ok {
		h.spans[w] = struct{}{}
		return
	}
	if h.places[at] == nil {
		h.places[at] = group{}
	}
	h.places[at][w] = struct{}{}
	if at.isPrefix && !slices.Contains(h.lengths, len(at.key)) {
		h.lengths = slices.Sorted(slices.Values(append(h.lengths, len(at.key))))
	}
}

// remove undoes add.
func (h *hub) remove(w *watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.spans, w)
	at, _ := placeOf(w.span)
	if delete(h.places[at], w); len(h.places[at]) == 0 {
		delete(h.places, at)
	}
}

// notify tells idle watches that asked for progress how far they are, until the
// context ends.
func (h *hub) notify(ctx context.Context) {
	wait.UntilWithContext(ctx, func(context.Context) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.all(func(w *watch) {
			if w.progress && !w.busy {
				w.ask(1)
			}
			w.busy = false
		})
	}, notifyInterval)
}
