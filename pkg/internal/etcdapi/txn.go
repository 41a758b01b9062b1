package etcdapi

import (
	"bytes"
	"cmp"
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
)

// Txn implements the etcd KV service. The transactions of API servers, one compare
// of a key's revision and one write of the same key, are one call of the log. For
// any other, the keys are read first, at one revision, and the write depends on
// them being still the same.
func (s *kv) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if len(r.Success) > revision.MaxChanges || len(r.Failure) > revision.MaxChanges || len(r.Compare) > revision.MaxChanges {
		return nil, rpctypes.ErrGRPCTooManyOps
	}
	if change, ok, err := single(r); ok || err != nil {
		if err != nil {
			return nil, err
		}
		return s.commitSingle(ctx, r, change)
	}
	for {
		t := &transaction{kv: s, values: map[string]*revision.KeyValue{}}
		response, again, err := t.run(ctx, r)
		if !again {
			return response, err
		}
	}
}

// single returns the change of a transaction that compares and writes one key.
func single(r *pb.TxnRequest) (change revision.Change, ok bool, err error) {
	if len(r.Compare) != 1 || len(r.Success) != 1 || len(r.Failure) > 1 {
		return change, false, nil
	}
	c := r.Compare[0]
	if c.GetModRevision() < 0 { // no key has it, and to a log it is any revision
		return change, false, nil
	}
	if c.Target != pb.Compare_MOD || c.Result != pb.Compare_EQUAL || len(c.RangeEnd) > 0 || isVersioned(storedKey(c.Key)) {
		return change, false, nil
	}
	if len(r.Failure) == 1 {
		get := r.Failure[0].GetRequestRange()
		if get == nil || !bytes.Equal(get.Key, c.Key) || len(get.RangeEnd) > 0 || get.Revision != 0 {
			return change, false, nil
		}
	}
	switch op := r.Success[0].Request.(type) {
	case *pb.RequestOp_RequestPut:
		if !bytes.Equal(op.RequestPut.Key, c.Key) {
			return change, false, nil
		}
		change, err = put(op.RequestPut)
	case *pb.RequestOp_RequestDeleteRange:
		if !bytes.Equal(op.RequestDeleteRange.Key, c.Key) || len(op.RequestDeleteRange.RangeEnd) > 0 {
			return change, false, nil
		}
		change = revision.Change{Kind: revision.Delete, Key: storedKey(c.Key)}
	default:
		return change, false, nil
	}
	change.Expect = c.GetModRevision()
	return change, true, err
}

func (s *kv) commitSingle(ctx context.Context, r *pb.TxnRequest, change revision.Change) (*pb.TxnResponse, error) {
	result, err := s.append(ctx, []revision.Change{change})
	if err != nil {
		return nil, err
	}
	response := &pb.TxnResponse{Header: &pb.ResponseHeader{Revision: result.Revision}, Succeeded: result.Refused < 0}
	switch {
	case result.Refused >= 0 && len(r.Failure) == 1:
		page := revision.Page{Revision: result.Revision}
		if kv := result.Before[0]; kv != nil {
			page.KVs, page.Count = []*revision.KeyValue{kv}, 1
		}
		response.Responses = []*pb.ResponseOp{{Response: &pb.ResponseOp_ResponseRange{ResponseRange: rangeResponse(page)}}}
	case result.Refused < 0:
		response.Responses = []*pb.ResponseOp{responseOp(r.Success[0], result.Revision, result.Before)}
	}
	return response, nil
}

// responseOp is the answer to a write at a revision, given the previous values of
// its keys.
func responseOp(op *pb.RequestOp, at int64, before []*revision.KeyValue) *pb.ResponseOp {
	header := &pb.ResponseHeader{Revision: at}
	if r := op.GetRequestPut(); r != nil {
		response := &pb.PutResponse{Header: header}
		if r.PrevKv && before[0] != nil {
			response.PrevKv = keyValue(before[0])
		}
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: response}}
	}
	response := &pb.DeleteRangeResponse{Header: header}
	for _, kv := range before {
		if kv == nil {
			continue
		}
		response.Deleted++
		if op.GetRequestDeleteRange().PrevKv {
			response.PrevKvs = append(response.PrevKvs, keyValue(kv))
		}
	}
	return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: response}}
}

// transaction is one try of any transaction.
type transaction struct {
	kv *kv
	// at is the revision at which everything is read, 0 before the first read.
	at int64
	// values are the keys that were read; nil where a key does not exist.
	values  map[string]*revision.KeyValue
	changes []revision.Change
	// ranges are answers to reads, by the index of their operation, and deletes the
	// number of changes that a deletion makes.
	ranges  map[int]*pb.RangeResponse
	deletes map[int]int
}

// run returns again if a key changed meanwhile.
func (t *transaction) run(ctx context.Context, r *pb.TxnRequest) (response *pb.TxnResponse, again bool, err error) {
	succeeded, err := t.compare(ctx, r.Compare)
	if err != nil {
		return nil, errors.Is(err, revision.ErrCompacted), rpcError(err)
	}
	ops := r.Failure
	if succeeded {
		ops = r.Success
	}
	if err := t.plan(ctx, ops); err != nil {
		return nil, errors.Is(err, revision.ErrCompacted), rpcError(err)
	}
	result := revision.Result{Revision: t.at, Refused: -1}
	if len(t.changes) > 0 {
		t.check()
		if result, err = t.kv.append(ctx, t.changes); err != nil {
			return nil, false, err
		}
		if result.Refused >= 0 {
			return nil, true, nil
		}
	}
	response = &pb.TxnResponse{Header: &pb.ResponseHeader{Revision: result.Revision}, Succeeded: succeeded}
	before := result.Before
	for i, op := range ops {
		if found, ok := t.ranges[i]; ok {
			response.Responses = append(response.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: found}})
			continue
		}
		n := 1
		if d, ok := t.deletes[i]; ok {
			n = d
		}
		response.Responses = append(response.Responses, responseOp(op, result.Revision, before[:n]))
		before = before[n:]
	}
	return response, false, nil
}

// read returns the keys of a span, at the revision of the transaction.
func (t *transaction) read(ctx context.Context, q revision.Query) (revision.Page, error) {
	if q.Revision == 0 {
		q.Revision = t.at
	}
	page, err := t.kv.log.Range(ctx, q)
	if err == nil && t.at == 0 {
		t.at = page.Revision
	}
	return page, err
}

// value returns a key's value and remembers it: the write depends on it.
func (t *transaction) value(ctx context.Context, key string) (*revision.KeyValue, error) {
	if kv, ok := t.values[key]; ok {
		return kv, nil
	}
	page, err := t.read(ctx, revision.Query{Span: revision.Span{Key: key}})
	if err != nil {
		return nil, err
	}
	var kv *revision.KeyValue
	if len(page.KVs) > 0 {
		kv = page.KVs[0]
	}
	t.values[key] = kv
	return kv, nil
}

// compare tells whether all comparisons hold.
func (t *transaction) compare(ctx context.Context, all []*pb.Compare) (bool, error) {
	succeeded := true
	for _, c := range all {
		if len(c.RangeEnd) > 0 {
			return false, unsupported("a comparison of more than one key")
		}
		kv, err := t.value(ctx, storedKey(c.Key))
		if err != nil {
			return false, err
		}
		holds, err := compare(c, kv)
		if err != nil {
			return false, err
		}
		succeeded = succeeded && holds
	}
	return succeeded, nil
}

// compare tells whether a comparison holds for a key with this value, or none.
func compare(c *pb.Compare, kv *revision.KeyValue) (bool, error) {
	var found revision.KeyValue
	if kv != nil {
		found = *kv
	}
	var order int
	switch c.Target {
	case pb.Compare_MOD:
		order = cmp.Compare(found.Mod, c.GetModRevision())
	case pb.Compare_CREATE:
		order = cmp.Compare(found.Create, c.GetCreateRevision())
	case pb.Compare_LEASE:
		order = cmp.Compare(leaseOf(found.Expires), c.GetLease())
	case pb.Compare_VALUE:
		if kv == nil {
			return false, nil // as etcd: there is no value to compare
		}
		order = bytes.Compare(found.Value, c.GetValue())
	case pb.Compare_VERSION:
		if !isVersioned(storedKey(c.Key)) && kv != nil {
			return false, unsupported("a comparison of a version")
		}
		version, _ := decodeVersion(found.Value)
		order = cmp.Compare(version, c.GetVersion())
	default:
		return false, unsupported("a comparison of " + c.Target.String())
	}
	switch c.Result {
	case pb.Compare_EQUAL:
		return order == 0, nil
	case pb.Compare_NOT_EQUAL:
		return order != 0, nil
	case pb.Compare_GREATER:
		return order > 0, nil
	case pb.Compare_LESS:
		return order < 0, nil
	}
	return false, unsupported("a comparison by " + c.Result.String())
}

// plan makes the changes of operations, and answers those that read.
func (t *transaction) plan(ctx context.Context, ops []*pb.RequestOp) error {
	t.ranges, t.deletes = map[int]*pb.RangeResponse{}, map[int]int{}
	written := map[string]bool{}
	for i, op := range ops {
		var err error
		switch r := op.Request.(type) {
		case *pb.RequestOp_RequestRange:
			err = t.planRange(ctx, i, r.RequestRange, written)
		case *pb.RequestOp_RequestPut:
			err = t.planPut(ctx, r.RequestPut)
		case *pb.RequestOp_RequestDeleteRange:
			err = t.planDelete(ctx, i, r.RequestDeleteRange)
		default:
			err = unsupported("a nested transaction")
		}
		if err != nil {
			return err
		}
		for _, c := range t.changes {
			written[c.Key] = true
		}
	}
	if len(t.changes) > len(written) {
		return rpctypes.ErrGRPCDuplicateKey
	}
	if t.at > 0 {
		return nil
	}
	current, _, err := t.kv.log.Current(ctx)
	t.at = current
	return err
}

func (t *transaction) planRange(ctx context.Context, i int, r *pb.RangeRequest, written map[string]bool) error {
	if err := supported(r); err != nil {
		return err
	}
	span := storedSpan(r.Key, r.RangeEnd)
	for key := range written {
		if span.Has(key) {
			return unsupported("a range of a key that the same transaction writes")
		}
	}
	page, err := t.read(ctx, revision.Query{
		Span: span, Revision: max(r.Revision, 0), Limit: r.Limit, KeysOnly: r.KeysOnly, CountOnly: r.CountOnly,
	})
	if r.Revision > 0 {
		err = rpcError(err) // another try would fail too
	}
	if err != nil {
		return err
	}
	t.ranges[i] = rangeResponse(page)
	return nil
}

func (t *transaction) planPut(ctx context.Context, r *pb.PutRequest) error {
	change, err := put(r)
	if err != nil {
		return err
	}
	if isVersioned(change.Key) {
		kv, err := t.value(ctx, change.Key)
		if err != nil {
			return err
		}
		change.Value = nextVersion(kv, change.Value)
	}
	t.add(change)
	return nil
}

func (t *transaction) planDelete(ctx context.Context, i int, r *pb.DeleteRangeRequest) error {
	if len(r.Key) == 0 {
		return rpctypes.ErrGRPCEmptyKey
	}
	span := storedSpan(r.Key, r.RangeEnd)
	if span.End == "" {
		t.add(revision.Change{Kind: revision.Delete, Key: span.Key})
		t.deletes[i] = 1
		return nil
	}
	page, err := t.read(ctx, revision.Query{Span: span})
	if err != nil {
		return err
	}
	for _, kv := range page.KVs {
		t.values[kv.Key] = kv
		t.add(revision.Change{Kind: revision.Delete, Key: kv.Key})
	}
	t.deletes[i] = len(page.KVs)
	return nil
}

// add adds a change that expects the state of its key that was read, if it was.
func (t *transaction) add(change revision.Change) {
	change.Expect = revision.AnyRevision
	if kv, ok := t.values[change.Key]; ok {
		change.Expect = modOf(kv)
	}
	t.changes = append(t.changes, change)
}

// check adds checks that the other keys read have not changed.
func (t *transaction) check() {
	written := map[string]bool{}
	for _, c := range t.changes {
		written[c.Key] = true
	}
	for key, kv := range t.values {
		if !written[key] {
			t.changes = append(t.changes, revision.Change{Kind: revision.Check, Key: key, Expect: modOf(kv)})
		}
	}
}

func modOf(kv *revision.KeyValue) int64 {
	if kv == nil {
		return 0
	}
	return kv.Mod
}
