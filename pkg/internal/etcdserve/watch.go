package etcdserve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// stalled is how long a client may take to read a message. What waits for it would
	// grow meanwhile; it goes on from where it was with a stream of its own.
	stalled = 30 * time.Second
	// fragmentBytes is how large the events of a message are, if the client takes
	// fragments: etcd's --max-request-bytes.
	fragmentBytes = maxRequestBytes
)

var (
	errStalled = status.Error(codes.Unavailable, "the client does not read its events")
	errEnded   = status.Error(codes.Unavailable, "the storage has ended the watch")
	errOld     = status.Error(codes.Unavailable, "the watch goes on with a new connection")
)

// watching is etcd's Watch service.
type watching struct {
	pb.UnimplementedWatchServer
	views  Views
	asked  func(context.Context)
	ending <-chan struct{}
	// age is when a stream ends, for its connection to end. 0: never.
	age time.Duration
}

// Watch implements the etcd Watch service.
func (s *watching) Watch(stream pb.Watch_WatchServer) error {
	v, err := s.views(stream.Context())
	if err != nil {
		return err
	}
	client, err := v.Open()
	if err != nil {
		return rpcError(err)
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	w := &watches{view: v, client: client, stream: stream, cancel: cancel, open: map[int64]context.CancelFunc{}}
	// Its own goroutine: only by returning does a server end a stream that is stuck.
	go func() { cancel(w.receive(ctx, s.asked)) }()
	var old <-chan time.Time // never
	if s.age > 0 {
		timer := time.NewTimer(s.age)
		defer timer.Stop()
		old = timer.C
	}
	select {
	case <-ctx.Done():
	case <-s.ending:
		cancel(errEnded)
	case <-old:
		cancel(errOld)
	}
	w.end()
	_ = client.Close() // the error only says that Close ended the context
	if err := context.Cause(ctx); !errors.Is(err, io.EOF) {
		return rpcError(err)
	}
	return nil
}

// watches are those of one stream.
type watches struct {
	view   *View
	client *clientv3.Client
	stream pb.Watch_WatchServer
	cancel context.CancelCauseFunc

	sending sync.Mutex

	mu      sync.Mutex
	open    map[int64]context.CancelFunc
	last    int64 // the number of the last watch
	ended   bool
	running sync.WaitGroup
}

// end waits for the watches, and has no further ones begin.
func (w *watches) end() {
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	w.running.Wait()
}

// receive does what the client asks for until the stream ends, and returns why it did.
func (w *watches) receive(ctx context.Context, asked func(context.Context)) error {
	for {
		r, err := w.stream.Recv()
		if err != nil {
			return err
		}
		asked(ctx)
		switch request := r.RequestUnion.(type) {
		case *pb.WatchRequest_CreateRequest:
			err = w.create(ctx, request.CreateRequest)
		case *pb.WatchRequest_CancelRequest:
			w.mu.Lock()
			if end := w.open[request.CancelRequest.WatchId]; end != nil {
				end()
			}
			w.mu.Unlock()
		case *pb.WatchRequest_ProgressRequest:
			err = w.client.RequestProgress(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// create begins a watch, or refuses it.
func (w *watches) create(ctx context.Context, r *pb.WatchCreateRequest) error {
	key := r.Key
	if len(key) == 0 {
		key = []byte(noEnd)
	}
	one, end := context.WithCancel(ctx)
	id, err := w.enter(r.WatchId, end)
	if err != nil {
		end()
		return w.refuse(id, err)
	}
	start, err := w.view.stored(r.StartRevision)
	done := func() {}
	if err == nil {
		done, err = w.view.Keeper.Watch()
	}
	if err != nil {
		end()
		w.forget(id)
		return w.refuse(id, err)
	}
	o := &watch{watches: w, id: id, start: start, place: w.view.span(key, r.RangeEnd), asked: r}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		end()
		done()
		return nil
	}
	w.running.Go(func() {
		defer done()
		defer end()
		if err := o.run(one); err != nil {
			w.cancel(err)
		}
	})
	return nil
}

// refuse tells that a watch was not begun, and why.
func (w *watches) refuse(id int64, err error) error {
	refused := &pb.WatchResponse{Header: w.view.at(0), WatchId: id, Created: true, Canceled: true, CancelReason: reason(err)}
	if !errors.Is(err, rpctypes.ErrGRPCCompacted) {
		return w.send(refused)
	}
	// As etcd, which finds out once the watch is made.
	if err := w.send(&pb.WatchResponse{Header: w.view.at(0), WatchId: id, Created: true}); err != nil {
		return err
	}
	refused.Created, refused.CompactRevision = false, max(w.view.shown(w.view.Keeper.Compacted()), 1)
	return w.send(refused)
}

// send sends one message, and ends the stream if the client does not read it.
func (w *watches) send(r *pb.WatchResponse) error {
	w.sending.Lock()
	defer w.sending.Unlock()
	late := time.AfterFunc(stalled, func() { w.cancel(errStalled) })
	defer late.Stop()
	return w.stream.Send(r)
}

func (w *watches) forget(id int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, id)
}

// watch is one of a stream.
type watch struct {
	*watches
	id    int64
	start int64 // in the storage; 0: now
	place span
	asked *pb.WatchCreateRequest
}

// run serves the watch until it ends. An error ends the stream.
func (w *watch) run(ctx context.Context) error {
	defer w.forget(w.id)
	// What the client goes on from after a cut, if nothing came before: the last
	// revision without an event for it.
	begun := w.start - 1
	if w.start == 0 {
		current, err := w.view.current(ctx)
		if err != nil {
			return w.over(ctx, err)
		}
		begun, w.start = current, current+1
	}
	if err := w.send(&pb.WatchResponse{Header: w.view.at(begun), WatchId: w.id, Created: true}); err != nil {
		return err
	}
	place, options := w.options()
	for r := range w.client.Watch(ctx, place.key, place.options(options...)...) {
		if r.Canceled {
			return w.canceled(ctx, &r)
		}
		if err := w.tell(&r); err != nil {
			return err
		}
	}
	return w.over(ctx, errEnded)
}

// over tells a client that has canceled the watch that it is over. With its stream, a
// watch only pauses: the client goes on with another one.
func (w *watch) over(ctx context.Context, err error) error {
	switch {
	case ctx.Err() == nil:
		return rpcError(err)
	case !errors.Is(context.Cause(ctx), context.Canceled):
		return nil
	}
	w.forget(w.id) // its number may be used again
	return w.send(&pb.WatchResponse{Header: w.view.at(0), WatchId: w.id, Canceled: true})
}

// canceled tells that the storage has ended the watch.
func (w *watch) canceled(ctx context.Context, r *clientv3.WatchResponse) error {
	if ctx.Err() != nil {
		return w.over(ctx, nil)
	}
	told := &pb.WatchResponse{
		Header: w.view.header(r.Header), WatchId: w.id, Canceled: true, CompactRevision: w.view.shown(r.CompactRevision),
	}
	if err := r.Err(); err != nil {
		told.CancelReason = reason(err)
	}
	return w.send(told)
}

// options are where the storage is watched, and how. A watch of neither a key nor a
// prefix costs storages work for every write of anybody; one of the whole root does not.
func (w *watch) options() (span, []clientv3.OpOption) {
	options := []clientv3.OpOption{clientv3.WithRev(w.start)}
	if w.asked.PrevKv {
		options = append(options, clientv3.WithPrevKV())
	}
	if w.asked.ProgressNotify {
		options = append(options, clientv3.WithProgressNotify())
	}
	for _, f := range w.asked.Filters {
		switch f {
		case pb.WatchCreateRequest_NOPUT:
			options = append(options, clientv3.WithFilterPut())
		case pb.WatchCreateRequest_NODELETE:
			options = append(options, clientv3.WithFilterDelete())
		}
	}
	if w.place.isPlace() {
		return w.place, options
	}
	return w.view.all(), options
}

// tell sends what the storage tells.
func (w *watch) tell(r *clientv3.WatchResponse) error {
	events := make([]*mvccpb.Event, 0, len(r.Events))
	for _, e := range r.Events {
		if w.place.has(string(e.Kv.Key)) {
			events = append(events, w.view.event(e))
		}
	}
	if len(events) == 0 && len(r.Events) > 0 {
		return nil
	}
	message := &pb.WatchResponse{Header: w.view.header(r.Header), WatchId: w.id, Events: events}
	for w.asked.Fragment {
		n := fragment(message.Events)
		if n == len(message.Events) {
			break
		}
		first := &pb.WatchResponse{Header: message.Header, WatchId: w.id, Events: message.Events[:n], Fragment: true}
		if err := w.send(first); err != nil {
			return err
		}
		message.Events = message.Events[n:]
	}
	return w.send(message)
}

// fragment is how many events fit one message, one at least.
func fragment(events []*mvccpb.Event) int {
	bytes := 0
	for i, e := range events {
		bytes += len(e.Kv.Key) + len(e.Kv.Value) + len(e.PrevKv.GetKey()) + len(e.PrevKv.GetValue())
		if i > 0 && bytes > fragmentBytes {
			return i
		}
	}
	return len(events)
}

// reason is why a watch ended, as etcd's client reads it.
func reason(err error) string {
	if s, ok := status.FromError(rpcError(err)); ok {
		return s.Message()
	}
	return fmt.Sprint(err)
}

// enter gives a watch its number: the one that the client chose, or the next.
func (w *watches) enter(chosen int64, end context.CancelFunc) (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if chosen != 0 && w.open[chosen] != nil {
		return chosen, rpctypes.ErrGRPCDuplicateKey
	}
	id := chosen
	for id == 0 || chosen == 0 && w.open[id] != nil {
		w.last++
		id = w.last
	}
	w.open[id] = end
	return id, nil
}
