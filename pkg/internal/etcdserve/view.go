package etcdserve

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// View is what a client may see of a storage.
type View struct {
	// Client reads and writes the storage.
	Client *clientv3.Client
	// Open returns a client for the watches of one stream. Whoever asks closes it.
	Open func() (*clientv3.Client, error)
	// Root starts every key in the storage, and none that the client sees.
	Root string
	// Offset is added to the revisions of the storage.
	Offset int64
	// ID is what answers have as the number of the cluster and of its member.
	ID uint64
	// Keeper decides what the client may do.
	Keeper Keeper
	// MaxAnswer is how many bytes of keys and values one answer may have, beside those of streams, which come in
	// parts. A range with a limit has less than it asks for, and says that there is more. 0: any number.
	MaxAnswer int64
}

// Keeper decides what a client may do, and counts it. Its errors are those of etcd
// ([rpctypes]). What it returns beside them is called when the client's call ends, that of Read later.
// Revisions are those of the storage.
type Keeper interface {
	// Read is asked before a read. Done gets how many bytes were read when the answer was sent: one that the
	// client does not take is kept by gRPC. It may not be called after the connection has ended.
	Read(ctx context.Context, r Reading) (done func(bytes int64), err error)
	// Write is asked before a write. Done gets the revision in which something was put, or
	// 0 if nothing was.
	Write(ctx context.Context, g Growth) (done func(revision int64), err error)
	// Watch is asked before a watch begins.
	Watch() (done func(), err error)
	// Grant grants a lease, and Lease returns the one of the storage that has a number.
	Grant(ctx context.Context, ttl int64) (id int64, err error)
	Lease(ctx context.Context, id int64) (clientv3.LeaseID, error)
	// Compact ends the history before a revision, and Compacted returns the last one.
	Compact(ctx context.Context, revision int64) error
	Compacted() int64
	// Size is what the client's keys and values take, in bytes.
	Size(ctx context.Context) (int64, error)
}

// Reading is how many keys a call reads or compares, and how many ranges of keys it reads. A stream is sent as its
// client takes it.
type Reading struct {
	Keys, Ranges int64
	Stream       bool
}

// Growth is what a write may be, at most: how many keys it adds and bytes it puts, the
// largest value, and how many puts and deletions it has.
type Growth struct {
	Keys, Bytes, Largest, Writes int64
}

// span is a key, or the keys from one on to before another.
type span struct{ key, end string }

// noEnd is the end of a span that has all further keys.
const noEnd = "\x00"

func (s span) has(key string) bool {
	if s.end == "" {
		return key == s.key
	}
	return key >= s.key && (s.end == noEnd || key < s.end)
}

// isPlace tells whether the span is one key or a prefix.
func (s span) isPlace() bool { return s.end == "" || s.end == clientv3.GetPrefixRangeEnd(s.key) }

// option is the option of etcd's client for the end of the span.
func (s span) options(more ...clientv3.OpOption) []clientv3.OpOption {
	if s.end == "" {
		return more
	}
	return append(more, clientv3.WithRange(s.end))
}

// span is where a client's keys are in the storage. None is beside the root: an end
// that is open is that of the root, and one below it compares as the client's own.
func (v *View) span(key, end []byte) span {
	s := span{key: v.Root + string(key)}
	switch {
	case len(end) == 0:
	case string(end) == noEnd:
		s.end = v.all().end
	default:
		s.end = v.Root + string(end)
	}
	return s
}

// all are the client's keys.
func (v *View) all() span {
	if v.Root == "" {
		return span{key: noEnd, end: noEnd}
	}
	return span{key: v.Root, end: clientv3.GetPrefixRangeEnd(v.Root)}
}

// stored returns the storage's revision for the client's, of which nothing is left
// if that was compacted. 0 stays 0, the newest.
func (v *View) stored(revision int64) (int64, error) {
	if revision <= 0 {
		return 0, nil
	}
	if revision -= v.Offset; revision <= 0 || revision < v.Keeper.Compacted() {
		return 0, rpctypes.ErrGRPCCompacted
	}
	return revision, nil
}

// shown returns the client's revision for the storage's.
func (v *View) shown(revision int64) int64 {
	if revision == 0 {
		return 0
	}
	return revision + v.Offset
}

func (v *View) header(h *pb.ResponseHeader) *pb.ResponseHeader { return v.at(h.GetRevision()) }

// at is the header of an answer at a revision of the storage.
func (v *View) at(revision int64) *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: v.ID, MemberId: v.ID, RaftTerm: 1, Revision: v.shown(revision)}
}

// isWhole tells whether the client sees the storage as it is.
func (v *View) isWhole() bool { return v.Root == "" && v.Offset == 0 }

// keyValue is what the client sees of a key value. The storage may have given the
// one that it has to others, too: it is not changed.
func (v *View) keyValue(kv *mvccpb.KeyValue) *mvccpb.KeyValue {
	if kv == nil || v.isWhole() {
		return kv
	}
	return &mvccpb.KeyValue{
		Key: kv.Key[len(v.Root):], Value: kv.Value, Lease: kv.Lease, Version: kv.Version,
		CreateRevision: v.shown(kv.CreateRevision), ModRevision: v.shown(kv.ModRevision),
	}
}

func (v *View) keyValues(kvs []*mvccpb.KeyValue) []*mvccpb.KeyValue {
	if v.isWhole() {
		return kvs
	}
	shown := make([]*mvccpb.KeyValue, len(kvs))
	for i, kv := range kvs {
		shown[i] = v.keyValue(kv)
	}
	return shown
}

// event is what the client sees of an event.
func (v *View) event(e *mvccpb.Event) *mvccpb.Event {
	if v.isWhole() {
		return e
	}
	return &mvccpb.Event{Type: e.Type, Kv: v.keyValue(e.Kv), PrevKv: v.keyValue(e.PrevKv)}
}

// countedBytes is what a key counts for that was only counted, in bytes that were read.
const countedBytes = 256

// readBytes is what a range has read: keys and values, or what it has counted. Without an answer it is nothing.
func readBytes(r *pb.RangeResponse) int64 {
	return max(keyBytes(r.GetKvs()), r.GetCount()*countedBytes)
}

// keyBytes is how many bytes of keys and values there are.
func keyBytes(kvs []*mvccpb.KeyValue) (bytes int64) {
	for _, kv := range kvs {
		bytes += int64(len(kv.Key) + len(kv.Value))
	}
	return bytes
}
