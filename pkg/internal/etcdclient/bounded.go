package etcdclient

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

// bounded is the client of a KV service whose calls end after a while, tries and all.
type bounded struct {
	pb.KVClient
	connection *grpc.ClientConn
	timeout    time.Duration
}

// call ends after the timeout. Where no member can be reached it says so: etcd's
// client tries again until then, and only tells that time is over.
func call[T any](ctx context.Context, b *bounded, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	r, err := f(ctx)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) && b.connection.GetState() != connectivity.Ready {
		err = status.Error(codes.Unavailable, "no member of the etcd cluster can be reached")
	}
	return r, err
}

// Range implements the client of the etcd KV service.
func (b *bounded) Range(ctx context.Context, r *pb.RangeRequest, opts ...grpc.CallOption) (*pb.RangeResponse, error) {
	return call(ctx, b, func(ctx context.Context) (*pb.RangeResponse, error) { return b.KVClient.Range(ctx, r, opts...) })
}

// Put implements the client of the etcd KV service.
func (b *bounded) Put(ctx context.Context, r *pb.PutRequest, opts ...grpc.CallOption) (*pb.PutResponse, error) {
	return call(ctx, b, func(ctx context.Context) (*pb.PutResponse, error) { return b.KVClient.Put(ctx, r, opts...) })
}

// DeleteRange implements the client of the etcd KV service.
func (b *bounded) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest, opts ...grpc.CallOption) (*pb.DeleteRangeResponse, error) {
	return call(ctx, b, func(ctx context.Context) (*pb.DeleteRangeResponse, error) {
		return b.KVClient.DeleteRange(ctx, r, opts...)
	})
}

// Txn implements the client of the etcd KV service.
func (b *bounded) Txn(ctx context.Context, r *pb.TxnRequest, opts ...grpc.CallOption) (*pb.TxnResponse, error) {
	return call(ctx, b, func(ctx context.Context) (*pb.TxnResponse, error) { return b.KVClient.Txn(ctx, r, opts...) })
}

// RangeStream implements the client of the etcd KV service.
func (b *bounded) RangeStream(ctx context.Context, r *pb.RangeRequest, opts ...grpc.CallOption) (pb.KV_RangeStreamClient, error) {
	ctx, cancel := context.WithCancel(ctx)
	s, err := b.KVClient.RangeStream(ctx, r, opts...)
	if err != nil {
		cancel()
		return nil, err
	}
	return &boundedStream{KV_RangeStreamClient: s, timeout: b.timeout, cancel: cancel}, nil
}

// boundedStream ends where a chunk does not come.
type boundedStream struct {
	pb.KV_RangeStreamClient
	timeout time.Duration
	cancel  context.CancelFunc
}

// Recv implements pb.KV_RangeStreamClient.
func (s *boundedStream) Recv() (*pb.RangeStreamResponse, error) {
	late := time.AfterFunc(s.timeout, s.cancel)
	chunk, err := s.KV_RangeStreamClient.Recv()
	if !late.Stop() {
		return nil, context.DeadlineExceeded
	}
	if err != nil {
		s.cancel()
	}
	return chunk, err
}

// NewLease returns the Lease of a connection to an etcd, whose leases are granted in
// the time given.
func NewLease(c *clientv3.Client, timeout time.Duration) clientv3.Lease {
	return &boundedLease{clientv3.NewLease(c), timeout}
}

type boundedLease struct {
	clientv3.Lease
	timeout time.Duration
}

// Grant implements clientv3.Lease.
func (l *boundedLease) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	return l.Lease.Grant(ctx, ttl)
}
