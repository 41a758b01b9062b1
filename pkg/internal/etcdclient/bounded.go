package etcdclient

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

const (
	// reachPatience is how long a call waits for a reachable member: as long as a
	// restart of one takes.
	reachPatience = 3 * time.Second
	// causeTimeout bounds the search for the reason of a missing answer.
	causeTimeout = 500 * time.Millisecond
)

// Remote is a connection to an etcd whose calls end after a while, retries
// included, and say why: etcd's client retries, and only says that the time is
// over.
type Remote struct {
	client     *clientv3.Client
	connection *grpc.ClientConn
	plain      pb.KVClient // without retries
	timeout    time.Duration
	// gone: no member could be reached at the last try.
	gone atomic.Bool
}

// NewRemote returns the connection of a client, with a timeout for each call.
func NewRemote(c *clientv3.Client, timeout time.Duration) *Remote {
	return &Remote{client: c, connection: c.ActiveConnection(), plain: pb.NewKVClient(c.ActiveConnection()), timeout: timeout}
}

// KV returns the KV of the connection. Its server may be too old for streams of
// ranges.
func (r *Remote) KV() clientv3.KV {
	return newKV(&bounded{clientv3.RetryKVClient(r.client), r}, r.client)
}

// Lease returns a Lease of the connection.
func (r *Remote) Lease() clientv3.Lease {
	return &boundedLease{clientv3.NewLease(r.client), r}
}

func (r *Remote) reached() bool { return r.connection.GetState() == connectivity.Ready }

// call ends after the connection's timeout: sooner if no member can be reached, and
// at once if none could since the last call.
func call[T any](ctx context.Context, r *Remote, f func(context.Context) (T, error)) (T, error) {
	if r.gone.Load() && !r.reached() {
		if err := r.cause(ctx); err != nil {
			var none T
			return none, err
		}
	}
	limited, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	defer time.AfterFunc(reachPatience, func() {
		if !r.reached() {
			cancel()
		}
	}).Stop()
	answer, err := f(limited)
	switch {
	case err == nil:
		r.gone.Store(false)
	case limited.Err() == nil || errors.Is(ctx.Err(), context.Canceled): // it was answered, or the caller is gone
	default:
		err = r.late(ctx)
	}
	return answer, err
}

// late returns the error of a call without an answer in time.
func (r *Remote) late(ctx context.Context) error {
	if err := r.cause(ctx); err != nil {
		return err
	}
	return status.Error(codes.DeadlineExceeded, "the etcd cluster does not answer in time")
}

// cause returns what keeps the etcd from answering, or nil if it is only slow: a
// reachable member knows whether there is a leader.
func (r *Remote) cause(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(context.WithoutCancel(ctx)), causeTimeout)
	defer cancel()
	_, err := r.plain.Range(ctx, &pb.RangeRequest{Key: []byte("health"), Serializable: true})
	reached := r.reached()
	r.gone.Store(!reached)
	switch {
	case status.Code(err) == codes.Unavailable:
		return err
	case !reached:
		return status.Error(codes.Unavailable, "no member of the etcd cluster can be reached")
	}
	return nil
}

// bounded is a KV client whose calls end.
type bounded struct {
	pb.KVClient
	remote *Remote
}

// Range implements the client of the etcd KV service.
func (b *bounded) Range(ctx context.Context, r *pb.RangeRequest, opts ...grpc.CallOption) (*pb.RangeResponse, error) {
	return call(ctx, b.remote, func(ctx context.Context) (*pb.RangeResponse, error) { return b.KVClient.Range(ctx, r, opts...) })
}

// Put implements the client of the etcd KV service.
func (b *bounded) Put(ctx context.Context, r *pb.PutRequest, opts ...grpc.CallOption) (*pb.PutResponse, error) {
	return call(ctx, b.remote, func(ctx context.Context) (*pb.PutResponse, error) { return b.KVClient.Put(ctx, r, opts...) })
}

// DeleteRange implements the client of the etcd KV service.
func (b *bounded) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest, opts ...grpc.CallOption) (*pb.DeleteRangeResponse, error) {
	return call(ctx, b.remote, func(ctx context.Context) (*pb.DeleteRangeResponse, error) {
		return b.KVClient.DeleteRange(ctx, r, opts...)
	})
}

// Txn implements the client of the etcd KV service.
func (b *bounded) Txn(ctx context.Context, r *pb.TxnRequest, opts ...grpc.CallOption) (*pb.TxnResponse, error) {
	return call(ctx, b.remote, func(ctx context.Context) (*pb.TxnResponse, error) { return b.KVClient.Txn(ctx, r, opts...) })
}

// RangeStream implements the client of the etcd KV service.
func (b *bounded) RangeStream(ctx context.Context, r *pb.RangeRequest, opts ...grpc.CallOption) (pb.KV_RangeStreamClient, error) {
	life, cancel := context.WithCancel(ctx)
	s, err := call(ctx, b.remote, func(limited context.Context) (pb.KV_RangeStreamClient, error) {
		defer context.AfterFunc(limited, cancel)() // bounds the opening only
		return b.KVClient.RangeStream(life, r, opts...)
	})
	if err != nil {
		cancel()
		return nil, err
	}
	return &boundedStream{KV_RangeStreamClient: s, remote: b.remote, cancel: cancel}, nil
}

// boundedStream ends when a chunk does not arrive in time.
type boundedStream struct {
	pb.KV_RangeStreamClient
	remote *Remote
	cancel context.CancelFunc
}

// Recv implements pb.KV_RangeStreamClient.
func (s *boundedStream) Recv() (*pb.RangeStreamResponse, error) {
	late := time.AfterFunc(s.remote.timeout, s.cancel)
	chunk, err := s.KV_RangeStreamClient.Recv()
	if !late.Stop() {
		return nil, s.remote.late(s.Context())
	}
	if err != nil {
		s.cancel()
	}
	return chunk, err
}

type boundedLease struct {
	clientv3.Lease
	remote *Remote
}

// Grant implements clientv3.Lease.
func (l *boundedLease) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	return call(ctx, l.remote, func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) { return l.Lease.Grant(ctx, ttl) })
}
