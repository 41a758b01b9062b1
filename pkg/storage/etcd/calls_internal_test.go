package etcd

import (
	"context"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// lagging is an etcd whose serializable reads are one revision behind.
type lagging struct {
	pb.KVServer
	revision int64
	rounds   int // reads that were linearizable
}

func (l *lagging) Range(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	now := l.revision
	if r.Serializable {
		now--
	} else {
		l.rounds++
	}
	if r.Revision > now {
		return nil, rpctypes.ErrGRPCFutureRev
	}
	return &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: now}}, nil
}

// silent is a stream that nobody reads.
type silent struct{ pb.Watch_WatchServer }

func (silent) Send(*pb.WatchResponse) error { return nil }

// TestReads: a read shows what watches told, and asks the members only when it must.
func TestReads(t *testing.T) {
	t.Parallel()
	etcd := &lagging{revision: 8}
	kv := &guardedKV{KVServer: etcd, calls: &calls{failure: newFailure()}, told: &told{}}
	stream := &stream{Watch_WatchServer: silent{}, told: kv.told}
	read := func(at int64) (revision int64, rounds int) {
		t.Helper()
		etcd.rounds = 0
		r, err := kv.Range(t.Context(), &pb.RangeRequest{Revision: at})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetHeader().GetRevision(), etcd.rounds
	}
	tell := func(revision int64) {
		if err := stream.Send(&pb.WatchResponse{Header: &pb.ResponseHeader{Revision: revision}}); err != nil {
			t.Error(err)
		}
	}
	if revision, rounds := read(0); revision != 7 || rounds != 0 {
		t.Errorf("before an event: revision %d with %d rounds, want 7 without one", revision, rounds)
	}
	tell(8)
	tell(3)
	if revision, rounds := read(0); revision != 8 || rounds != 1 {
		t.Errorf("after the event of revision 8: revision %d with %d rounds, want 8 with one", revision, rounds)
	}
	if revision, rounds := read(8); revision != 8 || rounds != 1 {
		t.Errorf("at revision 8: revision %d with %d rounds, want 8 with one", revision, rounds)
	}
	etcd.revision = 9
	if revision, rounds := read(0); revision != 8 || rounds != 0 {
		t.Errorf("when the event is applied: revision %d with %d rounds, want 8 without one", revision, rounds)
	}
	kv.told = nil
	if revision, rounds := read(0); revision != 9 || rounds != 1 {
		t.Errorf("with watches of other processes: revision %d with %d rounds, want 9 with one", revision, rounds)
	}
}
