package storagetest

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// fault is what is wrong with a storage. The zero value is nothing.
type fault struct {
	// revision makes the revision that clients see of the true one.
	revision func(int64) int64
	// lag is how many revisions lists are behind, and lagOfOne reads of one key; hidesLag:
	// and do not say so.
	lag, lagOfOne int64
	hidesLag      bool
	// blind: updates do not compare.
	blind bool
	// stream changes what a watch delivers.
	stream func(in, out chan clientv3.WatchResponse)
}

// twice has every fifth revision be the one before.
func twice(revision int64) int64 {
	if revision%5 == 0 {
		return revision - 1
	}
	return revision
}

// faulty is a storage with a fault in what its clients see.
type faulty struct {
	controlplane.Storage
	fault fault
}

// Open implements controlplane.Storage.
func (f faulty) Open() controlplane.Backend { return faultyBackend{f.Storage.Open(), f.fault} }

type faultyBackend struct {
	controlplane.Backend
	fault fault
}

// Client implements controlplane.Backend.
func (f faultyBackend) Client() (*clientv3.Client, error) {
	c, err := f.Backend.Client()
	if err != nil {
		return nil, err
	}
	c.KV = faultyKV{c.KV, f.fault}
	if f.fault.stream != nil || f.fault.revision != nil {
		c.Watcher = faultyWatcher{c.Watcher, f.fault}
	}
	return c, nil
}

// faultyKV reads and writes with a fault.
type faultyKV struct {
	clientv3.KV
	fault fault
}

// Get implements clientv3.KV.
func (f faultyKV) Get(ctx context.Context, key string, o ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	op := clientv3.OpGet(key, o...)
	r, err := f.KV.Get(ctx, key, o...)
	if err != nil {
		return nil, err
	}
	lag := f.fault.lag
	if len(op.RangeBytes()) == 0 {
		lag = f.fault.lagOfOne
	}
	if isNewest := op.Rev() == 0 && !op.IsCountOnly(); isNewest && lag > 0 && r.Header.Revision > lag+1 {
		now, then := r.Header.Revision, r.Header.Revision-lag
		// Where that is compacted, the answer is as new as it is.
		if old, err := f.KV.Get(ctx, key, append(o, clientv3.WithRev(then))...); err == nil {
			r = old
			if r.Header.Revision = then; f.fault.hidesLag {
				r.Header.Revision = now
			}
		}
	}
	f.fault.see(&r.Header.Revision, r.Kvs)
	return r, nil
}

// see changes the revisions of an answer.
func (f fault) see(header *int64, kvs []*mvccpb.KeyValue) {
	if f.revision == nil {
		return
	}
	*header = f.revision(*header)
	for _, kv := range kvs {
		if kv != nil {
			kv.ModRevision, kv.CreateRevision = f.revision(kv.ModRevision), f.revision(kv.CreateRevision)
		}
	}
}

// Txn implements clientv3.KV.
func (f faultyKV) Txn(ctx context.Context) clientv3.Txn {
	return &faultyTxn{Txn: f.KV.Txn(ctx), ctx: ctx, kv: f}
}

type faultyTxn struct {
	clientv3.Txn
	ctx context.Context //nolint:containedctx // as the transaction below, which keeps it until it commits
	kv  faultyKV
}

// If implements clientv3.Txn.
func (f *faultyTxn) If(compares ...clientv3.Cmp) clientv3.Txn {
	for i, c := range compares {
		target, ok := c.GetCompare().TargetUnion.(*pb.Compare_ModRevision)
		if !ok || !f.kv.fault.blind && f.kv.fault.revision == nil {
			continue
		}
		r, err := f.kv.KV.Get(f.ctx, string(c.KeyBytes()))
		if err != nil || len(r.Kvs) == 0 {
			continue
		}
		// Where updates are blind, whatever revision there is is right; else the
		// one of which the client saw something else.
		now := r.Kvs[0].ModRevision
		if f.kv.fault.blind || f.kv.fault.revision(now) == target.ModRevision {
			compares[i] = clientv3.Compare(clientv3.ModRevision(string(c.KeyBytes())), "=", now)
		}
	}
	f.Txn = f.Txn.If(compares...)
	return f
}

// Then implements clientv3.Txn.
func (f *faultyTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	f.Txn = f.Txn.Then(ops...)
	return f
}

// Else implements clientv3.Txn.
func (f *faultyTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	f.Txn = f.Txn.Else(ops...)
	return f
}

// Commit implements clientv3.Txn.
func (f *faultyTxn) Commit() (*clientv3.TxnResponse, error) {
	r, err := f.Txn.Commit()
	if err != nil {
		return nil, err
	}
	f.kv.fault.see(&r.Header.Revision, nil)
	for _, each := range r.Responses {
		if got := each.GetResponseRange(); got != nil {
			f.kv.fault.see(&r.Header.Revision, got.Kvs)
		}
	}
	return r, nil
}

// faultyWatcher watches with a fault.
type faultyWatcher struct {
	clientv3.Watcher
	fault fault
}

// Watch implements clientv3.Watcher.
func (f faultyWatcher) Watch(ctx context.Context, key string, o ...clientv3.OpOption) clientv3.WatchChan {
	in, out := make(chan clientv3.WatchResponse), make(chan clientv3.WatchResponse)
	truth := f.Watcher.Watch(ctx, key, o...)
	stream := f.fault.stream
	if stream == nil {
		stream = func(in, out chan clientv3.WatchResponse) {
			for r := range in {
				out <- r
			}
		}
	}
	// Responses of one event each, so that there is one to drop.
	go func() {
		defer close(in)
		for r := range truth {
			if len(r.Events) == 0 {
				in <- r
			}
			for _, e := range r.Events {
				f.fault.see(&r.Header.Revision, []*mvccpb.KeyValue{e.Kv, e.PrevKv})
				one := r
				one.Events = []*clientv3.Event{e}
				in <- one
			}
		}
	}()
	// Whoever stopped reading must not keep the watch below from its end.
	through := make(chan clientv3.WatchResponse)
	go func() {
		defer close(through)
		stream(in, through)
	}()
	go buffer(through, out)
	return out
}

// buffer hands on what comes, as much as comes while nobody reads.
func buffer(in <-chan clientv3.WatchResponse, out chan<- clientv3.WatchResponse) {
	var queue []clientv3.WatchResponse
	for in != nil {
		var to chan<- clientv3.WatchResponse
		var next clientv3.WatchResponse
		if len(queue) > 0 {
			to, next = out, queue[0]
		}
		select {
		case r, ok := <-in:
			if !ok {
				in = nil
				continue
			}
			queue = append(queue, r)
		case to <- next:
			queue = queue[1:]
		}
	}
	close(out)
}

// every is how many events a watch delivers for one that is wrong.
const every = 50

// fiftieth counts events, and tells whether another fifty are full: however many
// came at once, a stream that is long enough has its fault.
func fiftieth(n *int, r clientv3.WatchResponse) bool {
	before := *n
	*n += len(r.Events)
	return *n/every > before/every
}

func dropped(in, out chan clientv3.WatchResponse) {
	n := 0
	for r := range in {
		if fiftieth(&n, r) {
			continue
		}
		out <- r
	}
}

func doubled(in, out chan clientv3.WatchResponse) {
	n := 0
	for r := range in {
		out <- r
		if fiftieth(&n, r) {
			out <- r
		}
	}
}

func swapped(in, out chan clientv3.WatchResponse) {
	n := 0
	for r := range in {
		if fiftieth(&n, r) {
			next, ok := <-in
			if ok {
				out <- next
			}
		}
		out <- r
	}
}

// hasty announces progress to an event before it delivers that.
func hasty(in, out chan clientv3.WatchResponse) {
	n := 0
	for r := range in {
		if fiftieth(&n, r) {
			early := r
			early.Events = nil
			out <- early
		}
		out <- r
	}
}
