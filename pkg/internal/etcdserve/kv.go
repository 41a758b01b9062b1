package etcdserve

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// maxRequestBytes is how large a request may be, and maxOps how many operations a
// transaction may have: etcd's --max-request-bytes and --max-txn-ops.
const (
	maxRequestBytes = 1.5 * (1 << 20)
	maxOps          = 128
)

// kv is etcd's KV service.
type kv struct {
	pb.UnimplementedKVServer
	views Views
}

// Range implements the etcd KV service.
func (s *kv) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	v, err := s.views(ctx)
	if err != nil {
		return nil, err
	}
	op, err := v.get(r)
	if err != nil {
		return nil, err
	}
	done, err := v.Keeper.Read(ctx, reading(r))
	if err != nil {
		return nil, err
	}
	answer, err := v.bounded(ctx, r, op)
	whenSent(ctx, func() { done(readBytes(answer)) })
	if err != nil {
		return nil, rpcError(err)
	}
	return v.rangeResponse(answer), nil
}

// reading is what a range reads.
func reading(r *pb.RangeRequest) Reading {
	if len(r.RangeEnd) > 0 {
		return Reading{Ranges: 1}
	}
	return Reading{Keys: 1}
}

// RangeStream implements the etcd KV service (KEP-5966).
func (s *kv) RangeStream(r *pb.RangeRequest, stream pb.KV_RangeStreamServer) error {
	ctx := stream.Context()
	v, err := s.views(ctx)
	if err != nil {
		return err
	}
	place, options, err := v.read(r)
	if err != nil {
		return err
	}
	done, err := v.Keeper.Read(ctx, Reading{Ranges: 1, Stream: true})
	if err != nil {
		return err
	}
	var read int64
	defer func() { done(read) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // the reader of the storage ends, too, if the client has gone
	chunks, err := v.Client.GetStream(ctx, place.key, options...)
	if err != nil {
		return rpcError(err)
	}
	for chunk := range chunks {
		if err := chunk.Err(); err != nil {
			return rpcError(err)
		}
		read += readBytes(chunk.RangeResponse)
		if err := stream.Send(&pb.RangeStreamResponse{RangeResponse: v.rangeResponse(chunk.RangeResponse)}); err != nil {
			return err
		}
	}
	return rpcError(ctx.Err())
}

// read returns where a request reads, and how.
func (v *View) read(r *pb.RangeRequest) (span, []clientv3.OpOption, error) {
	switch {
	case len(r.Key) == 0:
		return span{}, nil, rpctypes.ErrGRPCEmptyKey
	case r.SortOrder != pb.RangeRequest_NONE && (r.SortOrder != pb.RangeRequest_ASCEND || r.SortTarget != pb.RangeRequest_KEY):
		return span{}, nil, unsupported("a range that is not in key order")
	case r.MinModRevision != 0, r.MaxModRevision != 0, r.MinCreateRevision != 0, r.MaxCreateRevision != 0:
		return span{}, nil, unsupported("a range with revision bounds")
	case r.Limit < 0:
		return span{}, nil, unsupported("a negative limit")
	}
	at, err := v.stored(r.Revision)
	if err != nil {
		return span{}, nil, err
	}
	options := []clientv3.OpOption{clientv3.WithRev(at), clientv3.WithLimit(r.Limit)}
	if r.Serializable {
		options = append(options, clientv3.WithSerializable())
	}
	if r.KeysOnly {
		options = append(options, clientv3.WithKeysOnly())
	}
	if r.CountOnly {
		options = append(options, clientv3.WithCountOnly())
	}
	place := v.span(r.Key, r.RangeEnd)
	return place, place.options(options...), nil
}

func (v *View) get(r *pb.RangeRequest) (clientv3.Op, error) {
	place, options, err := v.read(r)
	return clientv3.OpGet(place.key, options...), err
}

// rangeResponse is what the client sees of an answer. Only the last chunk of a
// stream has a header.
func (v *View) rangeResponse(r *pb.RangeResponse) *pb.RangeResponse {
	shown := &pb.RangeResponse{Kvs: v.keyValues(r.Kvs), More: r.More, Count: r.Count}
	if r.Header != nil {
		shown.Header = v.header(r.Header)
	}
	return shown
}

// Put implements the etcd KV service.
func (s *kv) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	op := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: r}}
	answer, err := s.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{op}})
	if err != nil {
		return nil, err
	}
	return answer.Responses[0].GetResponsePut(), nil
}

// put returns the operation of a request.
func (v *View) put(ctx context.Context, r *pb.PutRequest) (clientv3.Op, error) {
	switch {
	case len(r.Key) == 0:
		return clientv3.Op{}, rpctypes.ErrGRPCEmptyKey
	case r.IgnoreValue, r.IgnoreLease:
		return clientv3.Op{}, unsupported("a put that keeps a value or a lease")
	}
	var options []clientv3.OpOption
	if r.Lease != 0 {
		lease, err := v.Keeper.Lease(ctx, r.Lease)
		if err != nil {
			return clientv3.Op{}, rpcError(err)
		}
		options = append(options, clientv3.WithLease(lease))
	}
	if r.PrevKv {
		options = append(options, clientv3.WithPrevKV())
	}
	return clientv3.OpPut(v.Root+string(r.Key), string(r.Value), options...), nil
}

// DeleteRange implements the etcd KV service.
func (s *kv) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	op := &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: r}}
	answer, err := s.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{op}})
	if err != nil {
		return nil, err
	}
	return answer.Responses[0].GetResponseDeleteRange(), nil
}

func (v *View) delete(r *pb.DeleteRangeRequest) (clientv3.Op, error) {
	if len(r.Key) == 0 {
		return clientv3.Op{}, rpctypes.ErrGRPCEmptyKey
	}
	place := v.span(r.Key, r.RangeEnd)
	options := place.options()
	if r.PrevKv {
		options = append(options, clientv3.WithPrevKV())
	}
	return clientv3.OpDelete(place.key, options...), nil
}

// Compact implements the etcd KV service.
func (s *kv) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	v, err := s.views(ctx)
	if err != nil {
		return nil, err
	}
	at, err := v.stored(r.Revision)
	if err != nil {
		return nil, err
	}
	if err := v.Keeper.Compact(ctx, at); err != nil {
		return nil, rpcError(err)
	}
	current, err := v.current(ctx)
	if err != nil {
		return nil, rpcError(err)
	}
	return &pb.CompactionResponse{Header: v.at(current)}, nil
}

// current is the newest revision of the storage.
func (v *View) current(ctx context.Context) (int64, error) {
	answer, err := v.Client.Get(ctx, v.Root+noEnd, clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	return answer.Header.GetRevision(), nil
}

// fits refuses a request that is too large. How large it is, is known of its
// encoding.
func fits(r proto.Message) error {
	if proto.Size(r) > maxRequestBytes {
		return rpctypes.ErrGRPCRequestTooLarge
	}
	return nil
}

func unsupported(what string) error {
	return status.Error(codes.Unimplemented, what+" is no part of etcd's API that is served here")
}
