package etcdserve

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// errLarge is that of an answer that cannot be had in one piece.
var errLarge = status.Error(codes.ResourceExhausted, "the answer is too large: ask with a limit, or for a stream")

// unread is an answer that is not sent yet: gRPC keeps it for as long as its client does not read.
type unread struct {
	proto.Message
	sent func()
}

// left is what a call leaves to be done, if there is something.
type left struct{ do func() }

type leftKey struct{}

// whenSent has something done when the answer of a call was sent, or when the call fails: one thing for each call. If the
// connection ends before that, it may never be done.
func whenSent(ctx context.Context, do func()) {
	l, ok := ctx.Value(leftKey{}).(*left)
	if !ok {
		do() // somebody calls the service by itself
		return
	}
	l.do = do
}

// leave is the interceptor of calls that leave something to be done.
func leave(ctx context.Context, request any, _ *grpc.UnaryServerInfo, call grpc.UnaryHandler) (any, error) {
	var l left
	answer, err := call(context.WithValue(ctx, leftKey{}, &l), request)
	switch {
	case l.do == nil:
	case err != nil:
		l.do()
	default:
		return &unread{answer.(proto.Message), l.do}, nil
	}
	return answer, err
}

// codec is that of gRPC, and tells when the bytes of an answer are no longer needed.
type codec struct{ encoding.CodecV2 }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	u, ok := v.(*unread)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	size := proto.Size(u.Message)
	if mem.IsBelowBufferPoolingThreshold(size) { // of those gRPC does not tell
		u.sent()
		return c.CodecV2.Marshal(u.Message)
	}
	pool := sending{mem.DefaultBufferPool(), u.sent}
	data := pool.Get(size)
	if _, err := (proto.MarshalOptions{UseCachedSize: true}).MarshalAppend((*data)[:0], u.Message); err != nil {
		pool.Put(data)
		return nil, err
	}
	return mem.BufferSlice{mem.NewBuffer(data, pool)}, nil
}

// sending is the pool that an answer comes back to when it was sent.
type sending struct {
	mem.BufferPool
	sent func()
}

// Put implements mem.BufferPool.
func (s sending) Put(data *[]byte) {
	s.BufferPool.Put(data)
	s.sent()
}

// bounded does a read, whose answer is no larger than one may be.
func (v *View) bounded(ctx context.Context, r *pb.RangeRequest, op clientv3.Op) (*pb.RangeResponse, error) {
	if v.MaxAnswer > 0 && len(r.RangeEnd) > 0 && !r.CountOnly {
		size, err := v.Keeper.Size(ctx)
		if err != nil {
			return nil, err
		}
		if size > v.MaxAnswer {
			return v.part(ctx, r)
		}
	}
	answer, err := v.Client.Do(ctx, op)
	if err != nil {
		return nil, err
	}
	return (*pb.RangeResponse)(answer.Get()), nil
}

// part reads a range until the answer is as large as one may be.
func (v *View) part(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	place, options, err := v.read(r)
	if err != nil {
		return nil, err
	}
	// What the answer does not have is counted in the revision that it is of.
	count, err := v.Client.Get(ctx, place.key, append(options, clientv3.WithCountOnly())...)
	if err != nil {
		return nil, err
	}
	if r.Revision == 0 {
		options = append(options, clientv3.WithRev(count.Header.GetRevision()))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // the reader of the storage ends, too
	chunks, err := v.Client.GetStream(ctx, place.key, options...)
	if err != nil {
		return nil, err
	}
	answer := &pb.RangeResponse{Header: count.Header, Count: count.Count}
	var size int64
	for chunk := range chunks {
		if err := chunk.Err(); err != nil {
			return nil, err
		}
		size += keyBytes(chunk.Kvs)
		if size > v.MaxAnswer && len(answer.Kvs) > 0 {
			if r.Limit == 0 {
				return nil, errLarge
			}
			break
		}
		answer.Kvs = append(answer.Kvs, chunk.Kvs...)
	}
	answer.More = int64(len(answer.Kvs)) < answer.Count
	return answer, nil
}
