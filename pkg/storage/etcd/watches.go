package etcd

import (
	"context"
	"sync"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// told is the highest revision that a watch told of.
type told struct{ revision atomic.Int64 }

func (t *told) raise(revision int64) {
	for now := t.revision.Load(); now < revision && !t.revision.CompareAndSwap(now, revision); now = t.revision.Load() {
	}
}

// guardedWatch is etcd's watch service for as long as etcd runs.
type guardedWatch struct {
	pb.WatchServer
	calls *calls
	told  *told
}

// Watch implements the etcd watch service. It returns when no goroutine works
// for the stream any more.
func (g *guardedWatch) Watch(ws pb.Watch_WatchServer) error {
	if err := g.calls.begin(); err != nil {
		return err
	}
	defer g.calls.end()
	asked := &requests{came: make(chan struct{}, 1)}
	go asked.receive(ws) // until the stream ends, which it does when this has returned
	return g.WatchServer.Watch(&stream{ws, g.told, asked})
}

// stream is that of a client's watches.
type stream struct {
	pb.Watch_WatchServer

	told  *told
	asked *requests
}

// Send implements the stream of the etcd watch service. It notes what a watch tells, before it does.
func (s *stream) Send(r *pb.WatchResponse) error {
	s.told.raise(r.GetHeader().GetRevision())
	return s.Watch_WatchServer.Send(r)
}

// Recv implements the stream of the etcd watch service.
func (s *stream) Recv() (*pb.WatchRequest, error) { return s.asked.next(s.Context()) }

// requests are those of a stream that etcd has not read yet. The client reads no answer while it sends a
// request, and etcd no request while it sends an answer. Between processes, the buffers of the network are large
// enough for both to go on. In this one there are none: a client that ended some twenty watches at once would
// wait for etcd, and etcd for the client, for ever.
type requests struct {
	came chan struct{} // 1 when something has come

	mu      sync.Mutex
	waiting []*pb.WatchRequest
	err     error // how the stream has ended, after what is waiting
}

// receive takes the requests of a stream at once, until it ends.
func (r *requests) receive(from pb.Watch_WatchServer) {
	for err := error(nil); err == nil; {
		var request *pb.WatchRequest
		request, err = from.Recv()
		r.mu.Lock()
		if err == nil {
			r.waiting = append(r.waiting, request)
		}
		r.err = err
		r.mu.Unlock()
		select {
		case r.came <- struct{}{}:
		default:
		}
	}
}

// next waits for the next request.
func (r *requests) next(ctx context.Context) (*pb.WatchRequest, error) {
	for {
		if request, err := r.first(); request != nil || err != nil {
			return request, err
		}
		select {
		case <-r.came:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// first takes the first request, if there is one.
func (r *requests) first() (*pb.WatchRequest, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 {
		return nil, r.err
	}
	request := r.waiting[0]
	r.waiting = r.waiting[1:]
	return request, nil
}
