package kine

import (
	"context"
	"slices"
	"sync"

	"github.com/k3s-io/kine/pkg/server"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// compactKey is where API servers note how far they compacted, and where
	// kine's SQL drivers keep the same for themselves. kine moves the API
	// servers' one to compactKeyStored and encodes the version in its value.
	compactKey       = "compact_rev_key"
	compactKeyStored = "compact_rev_key_apiserver"
)

// stream is what one Watcher opened: a number of watches and an ordered queue
// of answers to them. All fields are guarded by the lock of the feed.
type stream struct {
	feed    *feed
	tasks   sync.WaitGroup // catching up
	wake    chan struct{}
	queue   []answer
	watches map[int64]*watch
	nextID  int64
	// wanted is the revision a progress request waits for; 0: there is none.
	wanted int64
}

// watch is one range of keys from one revision on.
type watch struct {
	id         int64
	key, end   string
	start      int64
	prevKV     bool
	notify     bool
	skipPuts   bool
	skipDelete bool
	cancel     context.CancelFunc // ends the reading of its history
	live       bool               // gets every new event
	gone       bool
	busy       bool // got an answer since the last notification
}

// answer is one queued response: events of a watch, or anything ready made.
type answer struct {
	watch    *watch
	events   []*server.Event
	response *pb.WatchResponse
}

// Watch implements the etcd watch service.
func (f *feed) Watch(ws pb.Watch_WatchServer) error {
	s := &stream{feed: f, wake: make(chan struct{}, 1), watches: map[int64]*watch{}}
	f.mu.Lock()
	if f.stopping {
		f.mu.Unlock()
		return server.ErrGRPCUnhealthy
	}
	f.streams[s] = struct{}{}
	f.serving.Add(1)
	f.mu.Unlock()
	defer f.serving.Done()

	ctx, cancel := context.WithCancel(ws.Context())
	var sender sync.WaitGroup
	sender.Go(func() { s.send(ctx, ws) })
	err := s.receive(ctx, ws)

	f.mu.Lock()
	delete(f.streams, s)
	for id := range s.watches {
		s.drop(id)
	}
	f.mu.Unlock()
	cancel()
	sender.Wait()
	s.tasks.Wait()
	return err
}

func (s *stream) receive(ctx context.Context, ws pb.Watch_WatchServer) error {
	for {
		request, err := ws.Recv()
		if err != nil {
			return err
		}
		switch r := request.RequestUnion.(type) {
		case *pb.WatchRequest_CreateRequest:
			err = s.create(ctx, r.CreateRequest)
		case *pb.WatchRequest_CancelRequest:
			s.feed.mu.Lock()
			s.end(r.CancelRequest.WatchId, s.feed.revision, 0, nil)
			s.feed.mu.Unlock()
		case *pb.WatchRequest_ProgressRequest:
			err = s.progress(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// send delivers the queue in order until the stream ends.
func (s *stream) send(ctx context.Context, ws pb.Watch_WatchServer) {
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return
		}
		s.feed.mu.Lock()
		queue := s.queue
		s.queue = nil
		s.feed.mu.Unlock()
		for _, a := range queue {
			response := a.response
			if response == nil {
				response = a.watch.respond(a.events)
			}
			if ws.Send(response) != nil {
				return
			}
		}
	}
}

func (s *stream) create(ctx context.Context, r *pb.WatchCreateRequest) error {
	current, err := s.feed.backend.CurrentRevision(ctx)
	if err != nil {
		return err
	}
	w := newWatch(r)
	if w.start == 0 {
		w.start = current + 1
	}
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	created := &pb.WatchResponse{Header: &pb.ResponseHeader{Revision: current}, Created: true, WatchId: s.nextID}
	if r.WatchId != clientv3.AutoWatchID || r.StartRevision < 0 {
		created.WatchId, created.Canceled = clientv3.InvalidWatchID, true
		created.CancelReason = server.ErrInvalidWatch.Error()
		s.enqueue(answer{response: created})
		return nil
	}
	w.id = s.nextID
	s.nextID++
	ctx, w.cancel = context.WithCancel(ctx)
	s.watches[w.id] = w
	s.enqueue(answer{response: created})
	s.feed.follow(ctx, s, w)
	return nil
}

func newWatch(r *pb.WatchCreateRequest) *watch {
	w := &watch{
		key: string(r.Key), end: string(r.RangeEnd), start: r.StartRevision,
		prevKV: r.PrevKv, notify: r.ProgressNotify,
		skipPuts:   slices.Contains(r.Filters, pb.WatchCreateRequest_NOPUT),
		skipDelete: slices.Contains(r.Filters, pb.WatchCreateRequest_NODELETE),
	}
	if w.key == compactKey && w.end == "" {
		w.key = compactKeyStored
	}
	return w
}

// progress notes a request for progress and answers it as soon as the feed has
// seen what was written until now.
func (s *stream) progress(ctx context.Context) error {
	current, err := s.feed.backend.CurrentRevision(ctx)
	if err != nil {
		return err
	}
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	s.wanted = max(s.wanted, current)
	s.answerProgress(s.feed.revision)
	return nil
}

// answerProgress announces the revision to the whole stream when that was
// asked for and every watch of it has its events up to there in the queue.
func (s *stream) answerProgress(revision int64) {
	if s.wanted == 0 || revision < s.wanted {
		return
	}
	for _, w := range s.watches {
		if !w.live {
			return
		}
	}
	s.wanted = 0
	s.enqueue(answer{response: &pb.WatchResponse{
		Header: &pb.ResponseHeader{Revision: revision}, WatchId: clientv3.InvalidWatchID,
	}})
}

func (s *stream) notifyIdle(revision int64) {
	for _, w := range s.watches {
		if w.notify && w.live && !w.busy {
			s.enqueue(answer{response: &pb.WatchResponse{
				Header: &pb.ResponseHeader{Revision: revision}, WatchId: w.id,
			}})
		}
		w.busy = false
	}
}

func (s *stream) offer(e *server.Event) {
	for _, w := range s.watches {
		if w.live && w.wants(e) {
			s.push(w, e)
		}
	}
}

// push queues an event, in one answer with those of the same watch before it.
func (s *stream) push(w *watch, e *server.Event) {
	w.busy = true
	if n := len(s.queue); n > 0 && s.queue[n-1].watch == w {
		s.queue[n-1].events = append(s.queue[n-1].events, e)
		return
	}
	s.enqueue(answer{watch: w, events: []*server.Event{e}})
}

func (s *stream) enqueue(a answer) {
	s.queue = append(s.queue, a)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// end cancels a watch and tells the client why; a nil reason means that the
// client asked for it.
func (s *stream) end(id, revision, compacted int64, reason error) {
	if !s.drop(id) {
		return
	}
	response := &pb.WatchResponse{
		Header: &pb.ResponseHeader{Revision: revision}, WatchId: id,
		Canceled: true, CompactRevision: compacted,
	}
	if reason != nil {
		response.CancelReason = reason.Error()
	}
	s.enqueue(answer{response: response})
	s.answerProgress(s.feed.revision)
}

func (s *stream) drop(id int64) bool {
	w, ok := s.watches[id]
	if ok {
		w.gone = true
		w.cancel()
		delete(s.watches, id)
	}
	return ok
}

func (w *watch) wants(e *server.Event) bool {
	if e.KV.ModRevision < w.start || e.Delete && w.skipDelete || !e.Delete && w.skipPuts {
		return false
	}
	if w.end == "" {
		return e.KV.Key == w.key
	}
	// etcd's end "\x00" means every key from the first on.
	return e.KV.Key >= w.key && (w.end == "\x00" || e.KV.Key < w.end)
}

// respond makes a response of events. Nothing in it is shared with the
// backend or with other watches.
func (w *watch) respond(events []*server.Event) *pb.WatchResponse {
	response := &pb.WatchResponse{
		Header:  &pb.ResponseHeader{Revision: events[len(events)-1].KV.ModRevision},
		WatchId: w.id,
		Events:  make([]*mvccpb.Event, 0, len(events)),
	}
	for _, e := range events {
		event := &mvccpb.Event{Type: mvccpb.PUT, Kv: keyValue(e.KV)}
		if e.Delete {
			event.Type = mvccpb.DELETE
			event.Kv = &mvccpb.KeyValue{Key: event.Kv.Key, ModRevision: e.KV.ModRevision}
		}
		if w.prevKV && !e.Create && e.PrevKV != nil && e.PrevKV.Key != "" {
			event.PrevKv = keyValue(e.PrevKV)
		}
		response.Events = append(response.Events, event)
	}
	return response
}

func keyValue(kv *server.KeyValue) *mvccpb.KeyValue {
	c := &mvccpb.KeyValue{
		Key: []byte(kv.Key), Value: slices.Clone(kv.Value), Lease: kv.Lease,
		Version: kv.Version, CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision,
	}
	if kv.Key == compactKeyStored {
		c.Key = []byte(compactKey)
		c.Version, c.Value = server.DecodeVersion(c.Value)
	}
	return c
}
