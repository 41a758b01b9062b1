package etcdapi

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
)

const (
	// maxQueued and maxQueuedBytes bound the events that wait for a watch that does
	// not read. It reads later ones from the log when it goes on.
	maxQueued      = 4096
	maxQueuedBytes = 4 << 20
	// readRetry is how long a watch waits after an error of the log.
	readRetry = time.Second
)

// watcher is the clientv3.Watcher of one client. In its place etcd's own client has
// a stream and four goroutines for its watches, and an unbounded buffer for each of
// them.
type watcher struct {
	hub *hub

	mu      sync.Mutex
	closed  bool
	watches map[*watch]struct{}
	running sync.WaitGroup
}

var _ clientv3.Watcher = (*watcher)(nil)

func newWatcher(h *hub) *watcher { return &watcher{hub: h, watches: map[*watch]struct{}{}} }

// watch is a span of keys from a revision on. The lock of the hub guards the fields
// that change.
type watch struct {
	span   revision.Span
	out    chan clientv3.WatchResponse
	cancel context.CancelFunc
	wake   chan struct{}
	// The options of the watch.
	previous, progress, created, noPut, noDelete bool

	queue []*revision.Event
	bytes int
	// next is the first revision that is neither queued nor sent. A live watch has
	// every event before the hub's revision in its queue.
	next int64
	live bool
	// wanted is the revision from which to tell progress; 0: not asked.
	wanted int64
	busy   bool // had an event since the last notification
}

// Watch implements clientv3.Watcher.
func (w *watcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	op := clientv3.OpGet(key, opts...)
	ctx, cancel := context.WithCancel(ctx)
	one := &watch{
		span:     storedSpan(op.KeyBytes(), op.RangeBytes()),
		previous: op.IsPrevKV(), progress: op.IsProgressNotify(), created: op.IsCreatedNotify(),
		noPut: op.IsFilterPut(), noDelete: op.IsFilterDelete(),
		out: make(chan clientv3.WatchResponse), cancel: cancel, wake: make(chan struct{}, 1), next: op.Rev(),
	}
	ended := one.next <= 0 && !w.hub.beginNow(ctx, one)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || ended {
		cancel()
		close(one.out)
		return one.out
	}
	w.watches[one] = struct{}{}
	w.hub.mu.Lock()
	one.live = one.next > w.hub.revision
	w.hub.add(one)
	w.hub.mu.Unlock()
	w.running.Go(func() {
		defer close(one.out)
		w.hub.serve(ctx, one)
		w.forget(one)
	})
	return one.out
}

func (w *watcher) forget(one *watch) {
	one.cancel()
	w.hub.remove(one)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.watches, one)
}

// RequestProgress implements clientv3.Watcher: every watch of the client tells how
// far it is once it has all writes before the call.
func (w *watcher) RequestProgress(ctx context.Context) error {
	current, _, err := w.hub.log.Current(ctx)
	if err != nil {
		return rpcError(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	for one := range w.watches {
		one.ask(max(current, 1))
	}
	return nil
}

// Close implements clientv3.Watcher.
func (w *watcher) Close() error {
	w.mu.Lock()
	w.closed = true
	for one := range w.watches {
		one.cancel()
	}
	w.mu.Unlock()
	w.running.Wait()
	return nil
}

// offer queues an event. The caller holds the lock of the hub, as for ask.
func (w *watch) offer(e *revision.Event) {
	if !w.live || e.KV.Mod < w.next {
		return
	}
	if len(w.queue) >= maxQueued || w.bytes >= maxQueuedBytes {
		w.live, w.next = false, e.KV.Mod
		return
	}
	w.next = e.KV.Mod + 1
	if e.Delete && w.noDelete || !e.Delete && w.noPut {
		return
	}
	w.queue = append(w.queue, e)
	w.bytes += e.Size()
	w.busy = true
	signal.Wake(w.wake)
}

// behind has the watch read from the log what it has not sent: the hub does not have all of it.
func (w *watch) behind() {
	if len(w.queue) > 0 {
		w.next = w.queue[0].KV.Mod
	}
	w.queue, w.bytes, w.live = nil, 0, false
	signal.Wake(w.wake)
}

// ask makes the watch tell that it has reached a revision, as soon as it has.
func (w *watch) ask(revision int64) {
	w.wanted = max(w.wanted, revision)
	signal.Wake(w.wake)
}

// serve delivers a watch until it ends.
func (h *hub) serve(ctx context.Context, w *watch) {
	if w.created && !w.send(ctx, clientv3.WatchResponse{Header: header(h.reached()), Created: true}) {
		return
	}
	for {
		events, progress, behind := h.take(w)
		switch {
		case len(events) > 0:
			if !w.sendEvents(ctx, events) {
				return
			}
		case behind:
			if !h.catchUp(ctx, w) {
				return
			}
		case progress > 0:
			if !w.send(ctx, clientv3.WatchResponse{Header: header(progress)}) {
				return
			}
		default:
			select {
			case <-w.wake:
			case <-ctx.Done():
				return
			}
		}
	}
}

// beginNow has a watch begin after what anybody has written by now: of a log that servers share the
// hub may not have all of it. It returns false if the watch has ended.
func (h *hub) beginNow(ctx context.Context, w *watch) bool {
	for {
		current, _, err := h.log.Current(ctx)
		switch {
		case err == nil:
			w.next = current + 1
			return true
		case errors.Is(err, revision.ErrClosed):
			return false
		}
		select {
		case <-time.After(readRetry):
		case <-ctx.Done():
			return false
		}
	}
}

func (h *hub) reached() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.revision
}

// take returns what to do for a watch: events to send, or progress to tell, or that
// it must read the log first.
func (h *hub) take(w *watch) (events []*revision.Event, progress int64, behind bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(w.queue) > 0 {
		events = w.queue
		w.queue, w.bytes = nil, 0
		return events, 0, false
	}
	if !w.live {
		if w.next <= h.revision {
			return nil, 0, true
		}
		w.live = true
	}
	if w.wanted > 0 && h.revision >= w.wanted {
		w.wanted = 0
		return nil, h.revision, false
	}
	return nil, 0, false
}

// catchUp reads the next events of a watch from the log. It returns false if the
// watch has ended.
func (h *hub) catchUp(ctx context.Context, w *watch) bool {
	events, through, err := h.log.Changes(ctx, w.span, w.next-1)
	switch {
	case errors.Is(err, revision.ErrCompacted):
		_, compacted, _ := h.log.Current(ctx) // known: it has just been compared with
		w.send(ctx, clientv3.WatchResponse{Header: header(h.reached()), Canceled: true, CompactRevision: max(compacted, 1)})
		return false
	case ctx.Err() != nil || errors.Is(err, revision.ErrClosed):
		return false
	case err != nil:
		klog.FromContext(ctx).Error(err, "A watch could not read the history", "key", w.span.Key, "revision", w.next)
		select {
		case <-time.After(readRetry):
			return true
		case <-ctx.Done():
			return false
		}
	}
	events = slices.DeleteFunc(events, func(e *revision.Event) bool {
		return e.Delete && w.noDelete || !e.Delete && w.noPut
	})
	if len(events) > 0 && !w.sendEvents(ctx, events) {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	w.next = through + 1
	return true
}

func (w *watch) sendEvents(ctx context.Context, events []*revision.Event) bool {
	r := clientv3.WatchResponse{
		Header: header(events[len(events)-1].KV.Mod), Events: make([]*clientv3.Event, len(events)),
	}
	for i, e := range events {
		r.Events[i] = w.event(e)
	}
	return w.send(ctx, r)
}

// event returns the client's copy of an event, with values of its own.
func (w *watch) event(e *revision.Event) *clientv3.Event {
	event := &clientv3.Event{Type: mvccpb.PUT}
	if e.Delete {
		event.Type = mvccpb.DELETE
		event.Kv = &mvccpb.KeyValue{Key: clientKey(e.KV.Key), ModRevision: e.KV.Mod}
	} else {
		event.Kv = keyValue(&e.KV)
	}
	if w.previous && e.Previous != nil {
		event.PrevKv = keyValue(e.Previous)
	}
	return event
}

// send returns false when the client no longer takes responses.
func (w *watch) send(ctx context.Context, r clientv3.WatchResponse) bool {
	select {
	case w.out <- r:
		return true
	case <-ctx.Done():
		return false
	}
}

func header(revision int64) *etcdserverpb.ResponseHeader {
	return &etcdserverpb.ResponseHeader{Revision: revision}
}
