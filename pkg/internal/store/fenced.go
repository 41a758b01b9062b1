package store

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sailplane-dev/sailplane/pkg/internal/election"
)

// fenced keeps what elected work writes within its term: a server that was stopped for a while may
// have sent it after another one had begun. Stores write with transactions only.
type fenced struct{ clientv3.KV }

// Txn implements clientv3.KV.
func (f fenced) Txn(ctx context.Context) clientv3.Txn {
	txn := f.KV.Txn(ctx)
	term, ok := election.Bound(ctx)
	if !ok {
		return txn
	}
	return &fencedTxn{txn: txn, term: term}
}

// fencedTxn is a transaction that is done only in a term.
type fencedTxn struct {
	txn       clientv3.Txn
	term      election.Term
	compares  []clientv3.Cmp
	otherwise []clientv3.Op
}

// If implements clientv3.Txn.
func (t *fencedTxn) If(cs ...clientv3.Cmp) clientv3.Txn {
	t.compares = append(t.compares, cs...)
	return t
}

// Then implements clientv3.Txn.
func (t *fencedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.txn = t.txn.If(append(t.compares, t.inTerm())...).Then(ops...)
	return t
}

// Else implements clientv3.Txn.
func (t *fencedTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.otherwise = append(t.otherwise, ops...)
	return t
}

func (t *fencedTxn) inTerm() clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(t.term.Key), "=", t.term.Revision)
}

// Commit implements clientv3.Txn.
func (t *fencedTxn) Commit() (*clientv3.TxnResponse, error) {
	r, err := t.txn.Else(append(t.otherwise, clientv3.OpGet(t.term.Key, clientv3.WithKeysOnly()))...).Commit()
	if err != nil || r.Succeeded {
		return r, err
	}
	last := len(r.Responses) - 1
	if found := r.Responses[last].GetResponseRange().Kvs; len(found) == 0 || found[0].ModRevision != t.term.Revision {
		return nil, election.ErrLost
	}
	r.Responses = r.Responses[:last]
	return r, nil
}

// BeginTerm ends the term of a name that another server may have begun, and begins one. A storage
// that cannot compare it has none.
func (b *Stores) BeginTerm(ctx context.Context, name, identity string) (election.Term, error) {
	if !b.Fences {
		return election.Term{}, nil
	}
	client, err := b.Client()
	if err != nil {
		return election.Term{}, err
	}
	defer client.Close() // the error only says that Close ended the context
	t := election.Term{Key: b.space().Term(name)}
	r, err := client.Put(ctx, t.Key, identity)
	if err != nil {
		return t, err
	}
	t.Revision = r.Header.Revision
	return t, nil
}
