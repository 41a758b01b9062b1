package etcdserve

import (
	"cmp"
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Txn implements the etcd KV service, without nested transactions and comparisons of
// ranges.
func (s *kv) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	v, err := s.views(ctx)
	if err != nil {
		return nil, err
	}
	if err := fits(r); err != nil {
		return nil, err
	}
	if max(len(r.Compare), len(r.Success), len(r.Failure)) > maxOps {
		return nil, rpctypes.ErrGRPCTooManyOps
	}
	done, err := v.enter(ctx, r)
	if err != nil {
		return nil, err
	}
	answer, err := v.commit(ctx, r)
	done(answer)
	if err != nil {
		return nil, err
	}
	return v.txnResponse(answer), nil
}

// commit has the storage do the transaction.
func (v *View) commit(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	compares, err := v.compares(r.Compare)
	if err != nil {
		return nil, err
	}
	success, err := v.operations(ctx, r.Success)
	if err != nil {
		return nil, err
	}
	failure, err := v.operations(ctx, r.Failure)
	if err != nil {
		return nil, err
	}
	answer, err := v.Client.Txn(ctx).If(compares...).Then(success...).Else(failure...).Commit()
	if err != nil {
		return nil, rpcError(err)
	}
	return (*pb.TxnResponse)(answer), nil
}

// enter asks the keeper, of what the transaction may do at most. Done gets the answer, or nil.
func (v *View) enter(ctx context.Context, r *pb.TxnRequest) (done func(*pb.TxnResponse), err error) {
	var growth Growth
	var reads Reading
	there := existing(r.Compare)
	for _, branch := range [][]*pb.RequestOp{r.Success, r.Failure} {
		var g Growth
		for _, op := range branch {
			if put := op.GetRequestPut(); put != nil {
				if !there[string(put.Key)] {
					g.Keys++
				}
				g.Bytes += int64(len(put.Key) + len(put.Value))
				g.Writes++
				growth.Largest = max(growth.Largest, int64(len(put.Value)))
			}
			if del := op.GetRequestDeleteRange(); del != nil {
				g.Writes++
			}
			read := readsOf(op)
			reads.Keys, reads.Ranges = reads.Keys+read.Keys, reads.Ranges+read.Ranges
		}
		growth.Keys, growth.Bytes, growth.Writes = max(growth.Keys, g.Keys), max(growth.Bytes, g.Bytes), max(growth.Writes, g.Writes)
	}
	if growth.Writes == 0 { // others compare while they write
		reads.Keys += int64(len(r.Compare))
	}
	if reads.Ranges > 0 && v.MaxAnswer > 0 {
		if size, err := v.Keeper.Size(ctx); err != nil || size > v.MaxAnswer {
			return nil, cmp.Or(err, errLarge)
		}
	}
	read, wrote := func(int64) {}, func(int64) {}
	if reads != (Reading{}) {
		if read, err = v.Keeper.Read(ctx, reads); err != nil {
			return nil, err
		}
	}
	if growth.Writes > 0 {
		if wrote, err = v.Keeper.Write(ctx, growth); err != nil {
			read(0)
			return nil, err
		}
	}
	return func(answer *pb.TxnResponse) {
		bytes, put := outcome(answer)
		wrote(put)
		whenSent(ctx, func() { read(bytes) })
	}, nil
}

// readsOf is what an operation of a transaction reads. What a deletion returns it reads, too.
func readsOf(op *pb.RequestOp) Reading {
	if r := op.GetRequestRange(); r != nil {
		return reading(r)
	}
	if r := op.GetRequestDeleteRange(); r.GetPrevKv() {
		return reading(&pb.RangeRequest{RangeEnd: r.RangeEnd})
	}
	return Reading{}
}

// existing are the keys that a transaction writes only if they exist.
func existing(all []*pb.Compare) map[string]bool {
	keys := map[string]bool{}
	for _, c := range all {
		if c.Target == pb.Compare_MOD && c.Result == pb.Compare_EQUAL && c.GetModRevision() > 0 {
			keys[string(c.Key)] = true
		}
	}
	return keys
}

// outcome is how many bytes of values a transaction has read, and the revision in which
// it has put something, or 0.
func outcome(answer *pb.TxnResponse) (bytes, put int64) {
	for _, op := range answer.GetResponses() {
		bytes += readBytes(op.GetResponseRange())
		if op.GetResponsePut() != nil {
			put = answer.Header.GetRevision()
		}
	}
	return bytes, put
}

// compares are the comparisons of a transaction, for the storage.
func (v *View) compares(all []*pb.Compare) ([]clientv3.Cmp, error) {
	compares := make([]clientv3.Cmp, len(all))
	for i, c := range all {
		switch {
		case len(c.Key) == 0:
			return nil, rpctypes.ErrGRPCEmptyKey
		case len(c.RangeEnd) > 0:
			return nil, unsupported("a comparison of more than one key")
		}
		compares[i] = clientv3.FromCompare(c)
		compares[i].WithKeyBytes([]byte(v.Root + string(c.Key)))
		switch of := compares[i].GetCompare(); of.Target {
		case pb.Compare_MOD:
			of.TargetUnion = &pb.Compare_ModRevision{ModRevision: v.expected(c.Result, c.GetModRevision())}
		case pb.Compare_CREATE:
			of.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: v.expected(c.Result, c.GetCreateRevision())}
		case pb.Compare_LEASE:
			return nil, unsupported("a comparison of a lease")
		}
	}
	return compares, nil
}

// expected is the storage's revision of a key for the one that the client expects. 0
// is that of no key. Those from before the keys were moved here no key has any more, and
// all keys have later ones.
func (v *View) expected(how pb.Compare_CompareResult, revision int64) int64 {
	switch {
	case revision <= 0:
		return revision
	case revision > v.Offset:
		return revision - v.Offset
	case how == pb.Compare_GREATER:
		return 0
	case how == pb.Compare_LESS:
		return 1
	}
	return -1
}

// operations are those of a transaction, for the storage.
func (v *View) operations(ctx context.Context, all []*pb.RequestOp) ([]clientv3.Op, error) {
	ops := make([]clientv3.Op, len(all))
	for i, op := range all {
		var err error
		switch r := op.GetRequest().(type) {
		case *pb.RequestOp_RequestRange:
			ops[i], err = v.get(r.RequestRange)
		case *pb.RequestOp_RequestPut:
			ops[i], err = v.put(ctx, r.RequestPut)
		case *pb.RequestOp_RequestDeleteRange:
			ops[i], err = v.delete(r.RequestDeleteRange)
		default:
			err = unsupported("a nested transaction")
		}
		if err != nil {
			return nil, err
		}
	}
	return ops, nil
}

// txnResponse is what the client sees of an answer.
func (v *View) txnResponse(r *pb.TxnResponse) *pb.TxnResponse {
	shown := &pb.TxnResponse{Header: v.header(r.Header), Succeeded: r.Succeeded, Responses: make([]*pb.ResponseOp, len(r.Responses))}
	for i, op := range r.Responses {
		shown.Responses[i] = v.operationResponse(op)
	}
	return shown
}

func (v *View) operationResponse(op *pb.ResponseOp) *pb.ResponseOp {
	switch r := op.Response.(type) {
	case *pb.ResponseOp_ResponseRange:
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: v.rangeResponse(r.ResponseRange)}}
	case *pb.ResponseOp_ResponsePut:
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{
			Header: v.header(r.ResponsePut.Header), PrevKv: v.keyValue(r.ResponsePut.PrevKv),
		}}}
	case *pb.ResponseOp_ResponseDeleteRange:
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: &pb.DeleteRangeResponse{
			Header: v.header(r.ResponseDeleteRange.Header), Deleted: r.ResponseDeleteRange.Deleted,
			PrevKvs: v.keyValues(r.ResponseDeleteRange.PrevKvs),
		}}}
	}
	return op
}
