package feed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/internal/keys"
	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
)

// Hub follows what a server stores, with one watch for the feeds of all planes.
type Hub struct {
	client       *clientv3.Client
	prefix       string
	transformers value.ResourceTransformers

	mu    sync.Mutex
	feeds map[string]*Feed // by plane
	// since is the revision from which feeds get every event, 0 while there is no
	// watch.
	since    int64
	revision int64         // the last revision they got
	asked    time.Time     // when the storage was last asked for progress without an answer yet
	moved    signal.Change // of since or revision
}

// NewHub makes a hub for what is stored below the prefix, "/registry", through the
// transformers, if there are any. [Hub.Run] owns the client and closes it.
func NewHub(client *clientv3.Client, prefix string, transformers value.ResourceTransformers) *Hub {
	return &Hub{
		client: client, prefix: prefix, transformers: transformers,
		feeds: map[string]*Feed{},
	}
}

// Feed returns a new feed of a plane, "" for the root plane. It begins with [Feed.Run].
func (h *Hub) Feed(plane string) *Feed {
	return newFeed(h, keys.Space{Prefix: h.prefix, Plane: plane})
}

// retry is the pause of the hub or a feed after an error.
const retry = time.Second

// Run follows the storage until the context ends. After a gap, because the history
// was compacted or the storage was away, all feeds read everything again.
func (h *Hub) Run(ctx context.Context) {
	defer h.client.Close()
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		err := h.follow(ctx)
		h.interrupt(err)
		if ctx.Err() == nil {
			klog.FromContext(ctx).Info("Restarting the feed of objects", "cause", err)
		}
	}, retry)
}

func (h *Hub) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	now, err := h.now(ctx)
	if err != nil {
		return err
	}
	watch := h.client.Watch(watchContext(ctx), strings.TrimSuffix(h.prefix, "/")+"/", clientv3.WithPrefix(), clientv3.WithRev(now+1))
	h.move(func() { h.since, h.revision = now, now })
	for r := range watch {
		if err := r.Err(); err != nil {
			return err
		}
		if len(r.Events) == 0 {
			h.move(func() { h.revision, h.asked = r.Header.Revision, time.Time{} })
			continue
		}
		h.deliver(r.Events)
	}
	return errors.New("the watch ended")
}

// watchContext gives the hub's watch a stream of its own, so that a progress
// request reaches only it.
func watchContext(ctx context.Context) context.Context { return clientv3.WithRequireLeader(ctx) }

// now returns the revision of the storage.
func (h *Hub) now(ctx context.Context) (int64, error) {
	r, err := h.client.Get(ctx, h.prefix, clientv3.WithCountOnly(), clientv3.WithLimit(1))
	if err != nil {
		return 0, fmt.Errorf("read the revision of the storage: %w", err)
	}
	return r.Header.Revision, nil
}

// deliver hands events to the feeds of their planes.
func (h *Hub) deliver(events []*clientv3.Event) {
	h.move(func() {
		for _, e := range events {
			plane, place := keys.Space{Prefix: h.prefix}.Place(string(e.Kv.Key))
			if f := h.feeds[plane]; f != nil && place != "" {
				f.waiting.add(event{place, e.Kv, e.Type == mvccpb.DELETE})
			}
		}
		// The header may be ahead of events that etcd did not send yet.
		h.revision = events[len(events)-1].Kv.ModRevision
	})
}

// interrupt makes all feeds read again.
func (h *Hub) interrupt(cause error) {
	h.move(func() {
		h.since = 0
		for _, f := range h.feeds {
			f.waiting.end(cause)
		}
	})
}

// move changes what callers of await wait for.
func (h *Hub) move(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
	h.moved.Announce()
}

// join gives a feed all events from the present revision on, as soon as there is a
// watch; later reads of the feed are not older than that.
func (h *Hub) join(ctx context.Context, f *Feed) error {
	return h.moved.Await(ctx, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.since == 0 {
			return false
		}
		f.waiting.begin()
		h.feeds[f.space.Plane] = f
		return true
	})
}

// leave undoes join.
func (h *Hub) leave(f *Feed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.feeds[f.space.Plane] == f {
		delete(h.feeds, f.space.Plane)
	}
}

// take returns the events that wait for a feed and the revision up to which it then
// has all events, or why there are no more.
func (h *Hub) take(f *Feed) (events []event, revision int64, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	events, err = f.waiting.events, f.waiting.ended
	f.waiting.events, f.waiting.bytes = nil, 0
	return events, h.revision, err
}

// event is a write, in a place (see [keys.Space.Place]).
type event struct {
	place   string
	kv      *mvccpb.KeyValue
	deleted bool
}

// queue has the events that wait for a feed. All fields but more, and all methods,
// need the hub's lock.
type queue struct {
	events []event
	bytes  int
	ended  error         // why there are no more
	more   chan struct{} // has room for one: there are events to take
}

func (q *queue) begin() { q.events, q.bytes, q.ended = nil, 0, nil }

// mostBytes bounds the values that wait for a feed. A feed that is further behind
// reads everything again, which is as fast.
const mostBytes = 64 << 20

var errBehind = errors.New("the feed fell too far behind")

func (q *queue) add(e event) {
	if q.ended != nil {
		return
	}
	if q.bytes += len(e.kv.Value); q.bytes > mostBytes {
		q.end(errBehind)
		return
	}
	q.events = append(q.events, e)
	signal.Wake(q.more)
}

func (q *queue) end(cause error) {
	if q.ended == nil {
		q.events, q.ended = nil, cause
		signal.Wake(q.more)
	}
}

// progressEvery is the pause between progress requests to a storage that does not
// answer, and lagTimeout is how long callers that ask for the lag wait for a watch
// that is behind.
const (
	progressEvery = 50 * time.Millisecond
	lagTimeout    = 200 * time.Millisecond
)

// reach returns when the feeds have been given all events up to a revision.
func (h *Hub) reach(ctx context.Context, revision int64) error {
	for {
		next, ask := h.await(revision)
		if next == nil {
			return nil
		}
		if ask {
			if err := h.client.RequestProgress(watchContext(ctx)); err != nil {
				return fmt.Errorf("request the progress of the watch: %w", err)
			}
		}
		select {
		case <-next:
		case <-time.After(progressEvery):
		case <-ctx.Done():
			return fmt.Errorf("the feed of objects has not reached revision %d: %w", revision, context.Cause(ctx))
		}
	}
}

// await returns a channel that is closed when the hub moves, or nil when it has
// reached the revision, and whether to request progress. There is one request at a
// time, however many callers wait: if each answer made all of them ask, answers
// would come faster than they are read.
func (h *Hub) await(revision int64) (next <-chan struct{}, ask bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.revision >= revision {
		return nil, false
	}
	if ask = h.since != 0 && time.Since(h.asked) >= progressEvery; ask {
		h.asked = time.Now()
	}
	return h.moved.Next(), ask
}

// Lag is how many revisions the watch is behind the storage, after some time to
// catch up.
func (h *Hub) Lag(ctx context.Context) (int64, error) {
	now, err := h.now(ctx)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, lagTimeout)
	defer cancel()
	// The error shows in the lag.
	_ = h.reach(ctx, now)
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(0, now-h.revision), nil
}

// History is how many replaced or deleted bytes the storage keeps after a
// compaction at a revision, since the feeds began. Values that cannot be decrypted
// are not counted.
func (h *Hub) History(compacted int64) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	var bytes int64
	for _, f := range h.feeds {
		bytes += f.replaced(compacted)
	}
	return bytes
}
