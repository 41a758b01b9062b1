package main

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sailplane-dev/sailplane/test/faults/history"
	"github.com/sailplane-dev/sailplane/test/faults/wire"
)

// patience is how long an operation waits for its answer.
const patience = 2 * time.Second

// server answers requests with a client of a storage.
type server struct {
	client *clientv3.Client
	out    *wire.Writer
}

// do does what a request asks, and answers. An answer that nobody reads is that
// of a process whose parent is gone.
func (s *server) do(ctx context.Context, r wire.Request) {
	answer := wire.Answer{ID: r.ID}
	switch r.Kind {
	case wire.Watch:
		answer.Op.Error = s.watch(ctx, r)
	case wire.Room:
		answer.Op.Outcome = history.OK
		if err := limitFiles(uint64(r.Revision)); err != nil {
			answer.Op.Outcome, answer.Op.Error = history.Failed, err.Error()
		}
	case history.Create, history.Update, history.Delete:
		answer.Op = s.write(ctx, r)
	default:
		answer.Op = s.read(ctx, r)
	}
	_ = s.out.Send(answer)
}

func (s *server) read(ctx context.Context, r wire.Request) history.Op {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var options []clientv3.OpOption
	switch r.Kind {
	case history.List:
		options = append(options, clientv3.WithPrefix())
	case history.ListAt:
		options = append(options, clientv3.WithPrefix(), clientv3.WithRev(r.Revision))
	case history.Count:
		options = append(options, clientv3.WithPrefix(), clientv3.WithCountOnly())
	}
	resp, err := s.client.Get(ctx, r.Key, options...)
	if err != nil {
		return history.Op{Outcome: history.Failed, Error: err.Error()}
	}
	return history.Op{Outcome: history.OK, Revision: resp.Header.Revision, Items: items(resp.Kvs), Count: resp.Count}
}

// write does a write as API servers do: a compare of the key's revision, the
// write, and the key as it is where the compare fails.
func (s *server) write(ctx context.Context, r wire.Request) history.Op {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	txn := s.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(r.Key), "=", r.Revision))
	switch r.Kind {
	case history.Create:
		txn = txn.Then(clientv3.OpPut(r.Key, r.Value))
	case history.Update:
		txn = txn.Then(clientv3.OpPut(r.Key, r.Value)).Else(clientv3.OpGet(r.Key))
	default:
		txn = txn.Then(clientv3.OpDelete(r.Key)).Else(clientv3.OpGet(r.Key))
	}
	resp, err := txn.Commit()
	if err != nil {
		return history.Op{Outcome: history.Unknown, Error: err.Error()}
	}
	op := history.Op{Outcome: history.OK, Revision: resp.Header.Revision}
	if !resp.Succeeded {
		op.Outcome = history.Refused
		for _, each := range resp.Responses {
			if found, is := each.Response.(*etcdserverpb.ResponseOp_ResponseRange); is {
				op.Items = items(found.ResponseRange.Kvs)
			}
		}
	}
	return op
}

func items(kvs []*mvccpb.KeyValue) []history.Item {
	var all []history.Item
	for _, kv := range kvs {
		all = append(all, history.Item{Key: string(kv.Key), Value: string(kv.Value), Revision: kv.ModRevision})
	}
	return all
}

// watch delivers events until the watch ends, and says why it did.
func (s *server) watch(ctx context.Context, r wire.Request) string {
	for resp := range s.client.Watch(ctx, r.Key, clientv3.WithPrefix(), clientv3.WithRev(r.Revision)) {
		if err := resp.Err(); err != nil {
			return err.Error()
		}
		for _, e := range resp.Events {
			op := history.Op{Kind: history.Put, Key: string(e.Kv.Key), Value: string(e.Kv.Value), Revision: e.Kv.ModRevision}
			if e.Type == clientv3.EventTypeDelete {
				op.Kind, op.Value = history.Removed, ""
			}
			if err := s.out.Send(wire.Answer{ID: r.ID, Event: true, Op: op}); err != nil {
				return err.Error()
			}
		}
	}
	return "the watch ended"
}
