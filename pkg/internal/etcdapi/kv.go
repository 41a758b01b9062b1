package etcdapi

import (
	"bytes"
	"context"
	"errors"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
)

// kv is etcd's KV service on a log.
type kv struct {
	pb.UnimplementedKVServer
	log revision.Log
}

// Range implements the etcd KV service.
func (s *kv) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	if err := supported(r); err != nil {
		return nil, err
	}
	page, err := s.log.Range(ctx, revision.Query{
		Span: storedSpan(r.Key, r.RangeEnd), Revision: max(r.Revision, 0), Limit: r.Limit,
		KeysOnly: r.KeysOnly, CountOnly: r.CountOnly,
	})
	if err != nil {
		return nil, rpcError(err)
	}
	return rangeResponse(page), nil
}

func supported(r *pb.RangeRequest) error {
	switch {
	case len(r.Key) == 0:
		return rpctypes.ErrGRPCEmptyKey
	case r.SortOrder != pb.RangeRequest_NONE && (r.SortOrder != pb.RangeRequest_ASCEND || r.SortTarget != pb.RangeRequest_KEY):
		return unsupported("a range that is not in key order")
	case r.MinModRevision != 0, r.MaxModRevision != 0, r.MinCreateRevision != 0, r.MaxCreateRevision != 0:
		return unsupported("a range with revision bounds")
	}
	return nil
}

func rangeResponse(page revision.Page) *pb.RangeResponse {
	response := &pb.RangeResponse{
		Header: &pb.ResponseHeader{Revision: page.Revision}, Count: page.Count, More: int64(len(page.KVs)) < page.Count,
	}
	if len(page.KVs) > 0 {
		response.Kvs = make([]*mvccpb.KeyValue, len(page.KVs))
		for i, kv := range page.KVs {
			response.Kvs[i] = keyValue(kv)
		}
	}
	return response
}

// Put implements the etcd KV service.
func (s *kv) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	response, err := s.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: r}}}})
	if err != nil {
		return nil, err
	}
	return response.Responses[0].GetResponsePut(), nil
}

// put returns the change of a request, without an expectation.
func put(r *pb.PutRequest) (revision.Change, error) {
	switch {
	case len(r.Key) == 0:
		return revision.Change{}, rpctypes.ErrGRPCEmptyKey
	case r.IgnoreValue, r.IgnoreLease:
		return revision.Change{}, unsupported("a put that keeps a value or a lease")
	}
	expires, err := deadline(r.Lease)
	if err != nil {
		return revision.Change{}, err
	}
	// The caller may use its bytes again.
	return revision.Change{Key: storedKey(r.Key), Value: bytes.Clone(r.Value), Expires: expires}, nil
}

// DeleteRange implements the etcd KV service.
func (s *kv) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	response, err := s.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{{
		Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: r},
	}}})
	if err != nil {
		return nil, err
	}
	return response.Responses[0].GetResponseDeleteRange(), nil
}

// Compact implements the etcd KV service.
func (s *kv) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	if err := s.log.Compact(ctx, r.Revision); err != nil {
		return nil, rpcError(err)
	}
	current, _, err := s.log.Current(ctx)
	if err != nil {
		return nil, rpcError(err)
	}
	return &pb.CompactionResponse{Header: &pb.ResponseHeader{Revision: current}}, nil
}

// append writes the changes, if they are not more than a transaction may have.
func (s *kv) append(ctx context.Context, changes []revision.Change) (revision.Result, error) {
	if len(changes) > revision.MaxChanges {
		return revision.Result{}, rpctypes.ErrGRPCTooManyOps
	}
	result, err := s.log.Append(ctx, changes)
	return result, rpcError(err)
}

// keyValue returns a key value for a client, with bytes of its own: the client may
// write to them.
func keyValue(kv *revision.KeyValue) *mvccpb.KeyValue {
	c := &mvccpb.KeyValue{
		Key: []byte(kv.Key), Value: slices.Clone(kv.Value), Lease: leaseOf(kv.Expires),
		CreateRevision: kv.Create, ModRevision: kv.Mod,
	}
	if isVersioned(kv.Key) {
		c.Key = clientKey(kv.Key)
		c.Version, c.Value = decodeVersion(c.Value)
	}
	return c
}

func unsupported(what string) error {
	return status.Error(codes.Unimplemented, what+" is not supported by this storage")
}

// rpcError returns the error that the client turns into etcd's own.
func rpcError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, revision.ErrCompacted):
		return rpctypes.ErrGRPCCompacted
	case errors.Is(err, revision.ErrFuture):
		return rpctypes.ErrGRPCFutureRev
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	case status.Code(err) != codes.Unknown:
		return err
	}
	return status.Error(codes.Unavailable, err.Error())
}
