package kine

import (
	"context"
	"sync"
	"time"

	"github.com/k3s-io/kine/pkg/server"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

const (
	// notifyInterval is how often a watch that asked for progress and saw no
	// event hears of it: what Kubernetes asks of etcd.
	notifyInterval = 5 * time.Second
	// retryDelay keeps a feed that lost its source from spinning.
	retryDelay = 10 * time.Millisecond
	// recentEvents and recentBytes bound what the feed remembers for watches
	// that start in the past. Older starts read the history of the backend.
	recentEvents = 4096
	recentBytes  = 16 << 20
)

// feed reads every event of a backend once and in order, and distributes it.
// It implements the etcd watch service.
type feed struct {
	backend server.Backend
	reader  sync.WaitGroup // reads the backend
	ticker  sync.WaitGroup // notifies
	serving sync.WaitGroup // streams

	mu       sync.Mutex
	stopping bool
	streams  map[*stream]struct{}
	// revision is that up to which every event was distributed, and moved is
	// closed when it changes.
	revision int64
	moved    chan struct{}
	// recent holds the last events, oldest first; all above forgotten.
	recent    []*server.Event
	bytes     int
	forgotten int64
	compacted int64
}

var _ pb.WatchServer = (*feed)(nil)

func newFeed(b server.Backend, current int64) *feed {
	return &feed{
		backend: b, revision: current, forgotten: current,
		streams: map[*stream]struct{}{}, moved: make(chan struct{}),
	}
}

// start begins to read before it returns: kine's SQL drivers only start to poll
// with the first watch, and hang where that comes after their end.
func (f *feed) start(ctx context.Context) {
	first := f.backend.Watch(ctx, "", "", f.revision+1)
	f.reader.Go(func() { f.read(ctx, first) })
	f.ticker.Go(func() { f.notify(ctx) })
}

// wait returns when the context of start has ended and all work with it.
func (f *feed) wait() {
	f.reader.Wait()
	f.ticker.Wait()
}

// endStreams refuses new streams and waits for those there are to end, which
// they do when their clients close.
func (f *feed) endStreams() {
	f.mu.Lock()
	f.stopping = true
	f.mu.Unlock()
	f.serving.Wait()
}

// read follows the backend from where it stopped until the context ends or,
// while stopping, the backend ends.
func (f *feed) read(ctx context.Context, source server.WatchResult) {
	for {
		distribute := f.distribute
		if failed(source) {
			distribute = func([]*server.Event) {} // what came since the history, of which there is none
		}
		f.drain(ctx, source.Events, distribute)
		if source.CompactRevision != 0 {
			f.skip(source.CurrentRevision, source.CompactRevision)
		}
		if f.isStopping() {
			return
		}
		select {
		case <-time.After(retryDelay):
		case <-ctx.Done():
			return
		}
		f.mu.Lock()
		next := f.revision + 1
		f.mu.Unlock()
		source = f.backend.Watch(ctx, "", "", next)
	}
}

// failed tells that the history before the events of a watch could not be read.
// kine begins the watch all the same.
func failed(source server.WatchResult) bool {
	select {
	case err := <-source.Errorc:
		return err != nil
	default:
		return source.CompactRevision != 0
	}
}

// drain distributes events until the source or the context ends.
func (f *feed) drain(ctx context.Context, source <-chan []*server.Event, distribute func([]*server.Event)) {
	for {
		select {
		case events, ok := <-source:
			if !ok {
				return
			}
			distribute(events)
		case <-ctx.Done():
			return
		}
	}
}

func (f *feed) isStopping() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stopping
}

// distribute hands events to the watches they concern. A backend may repeat
// events it sent before.
func (f *feed) distribute(events []*server.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range events {
		if e == nil || e.KV == nil || e.KV.ModRevision <= f.revision {
			continue
		}
		f.revision = e.KV.ModRevision
		f.remember(e)
		for s := range f.streams {
			s.offer(e)
		}
	}
	for s := range f.streams {
		s.answerProgress(f.revision)
	}
	f.move()
}

// move tells those who wait for a revision to look. The caller holds the lock.
func (f *feed) move() {
	close(f.moved)
	f.moved = make(chan struct{})
}

// reach waits until the feed has read all events up to a revision, as far as
// there are any, or the context ends.
func (f *feed) reach(ctx context.Context, revision int64) {
	for {
		f.mu.Lock()
		reached, moved := f.revision >= revision, f.moved
		f.mu.Unlock()
		if reached {
			return
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return
		}
	}
}

func (f *feed) remember(e *server.Event) {
	f.recent = append(f.recent, e)
	f.bytes += size(e)
	for len(f.recent) > recentEvents || f.bytes > recentBytes {
		f.forget()
	}
}

// forget drops the oldest event.
func (f *feed) forget() {
	oldest := f.recent[0]
	f.recent[0] = nil
	f.recent = f.recent[1:]
	f.bytes -= size(oldest)
	f.forgotten = oldest.KV.ModRevision
}

func size(e *server.Event) int {
	n := len(e.KV.Key) + len(e.KV.Value)
	if e.PrevKV != nil {
		n += len(e.PrevKV.Value)
	}
	return n
}

// compact notes that the history before revision is gone.
func (f *feed) compact(revision int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.compacted = max(f.compacted, revision)
	for len(f.recent) > 0 && f.recent[0].KV.ModRevision < revision {
		f.forget()
	}
}

// skip gives up the events that were compacted before the feed read them, and
// with them every watch that may have waited for one.
func (f *feed) skip(current, compacted int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.revision, f.forgotten = max(f.revision, current), max(f.revision, current)
	f.recent, f.bytes = nil, 0
	f.compacted = max(f.compacted, compacted)
	f.move()
	for s := range f.streams {
		for id := range s.watches {
			s.end(id, f.revision, compacted, server.ErrCompacted)
		}
	}
}

// notify tells idle watches that asked for it how far they are.
func (f *feed) notify(ctx context.Context) {
	tick := time.NewTicker(notifyInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		f.mu.Lock()
		for s := range f.streams {
			s.notifyIdle(f.revision)
		}
		f.mu.Unlock()
	}
}

// follow brings a new watch to the present: from memory where that reaches
// back far enough, else from the history of the backend. The caller holds the
// lock.
func (f *feed) follow(ctx context.Context, s *stream, w *watch) {
	switch {
	case w.start < f.compacted:
		s.end(w.id, f.revision, f.compacted, server.ErrCompacted)
	case w.start > f.forgotten:
		f.join(s, w, w.start-1)
	default:
		s.tasks.Go(func() { f.catchUp(ctx, s, w) })
	}
}

// join gives a watch the remembered events above seen and, from here on, every
// new one.
func (f *feed) join(s *stream, w *watch, seen int64) {
	for _, e := range f.recent {
		if e.KV.ModRevision > seen && w.wants(e) {
			s.push(w, e)
		}
	}
	// The history may have been ahead of the feed, which comes to those events
	// later.
	w.start = max(w.start, seen+1)
	w.live = true
	s.answerProgress(f.revision)
}

// catchUp reads the history of all keys from the start of the watch on. All
// keys, because only then does it see that it has reached what the feed
// remembers.
func (f *feed) catchUp(ctx context.Context, s *stream, w *watch) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	source := f.backend.Watch(ctx, "", "", w.start)
	if failed(source) {
		err := server.ErrGRPCUnhealthy
		if source.CompactRevision != 0 {
			err = server.ErrCompacted
		}
		f.mu.Lock()
		s.end(w.id, max(f.revision, source.CurrentRevision), source.CompactRevision, err)
		f.mu.Unlock()
	}
	seen := w.start - 1
	for events := range source.Events {
		// Once the watch is live or gone the rest is read and dropped: the
		// backend waits for its reader.
		f.mu.Lock()
		if !w.live && !w.gone {
			seen = f.replay(s, w, events, seen)
		}
		if w.live {
			cancel()
		}
		f.mu.Unlock()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !w.live {
		s.end(w.id, f.revision, 0, server.ErrGRPCUnhealthy)
	}
}

// replay queues events above seen and joins the watch to the feed once they
// reach what that remembers. It returns the last revision seen.
func (f *feed) replay(s *stream, w *watch, events []*server.Event, seen int64) int64 {
	for _, e := range events {
		if e == nil || e.KV == nil || e.KV.ModRevision <= seen {
			continue
		}
		seen = e.KV.ModRevision
		if w.wants(e) {
			s.push(w, e)
		}
	}
	if seen >= f.forgotten {
		f.join(s, w, seen)
	}
	return seen
}
