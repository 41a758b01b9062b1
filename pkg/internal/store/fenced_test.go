package store

import (
	"context"
	"errors"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sailplane-dev/sailplane/pkg/internal/election"
	"github.com/sailplane-dev/sailplane/pkg/internal/etcdapi"
	"github.com/sailplane-dev/sailplane/pkg/internal/memorylog"
	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
)

// TestFenced: what elected work writes is written in its term only, whatever it compares.
func TestFenced(t *testing.T) {
	t.Parallel()
	backend := &etcdapi.Backend{Name: "memory", Open: func(_ context.Context, f revision.Follower) (revision.Log, error) {
		return memorylog.New(f, 1<<20, 1), nil
	}}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(backend.Start(t.Context()))
	t.Cleanup(func() { must(backend.Stop(context.Background())) })
	client, err := backend.Client()
	must(err)
	defer client.Close() // the error only says that Close ended the context
	stores := &Stores{Backend: &Backend{Client: backend.Client, Prefix: "/registry", Shared: true, Fences: true}}
	first, err := stores.BeginTerm(t.Context(), "work", "one")
	must(err)
	kv := fenced{client.KV}
	put := func(term election.Term, key string, version int64) (bool, error) {
		txn := kv.Txn(election.Bind(t.Context(), term)).If(clientv3.Compare(clientv3.ModRevision(key), "=", version)).
			Then(clientv3.OpPut(key, "x")).Else(clientv3.OpGet(key))
		r, err := txn.Commit()
		if err != nil {
			return false, err
		}
		if n := len(r.Responses); n != 1 {
			t.Errorf("%s has %d answers, want that of its own operation", key, n)
		}
		return r.Succeeded, nil
	}
	if done, err := put(first, "/a", 0); !done || err != nil {
		t.Errorf("in its term: %v, %v", done, err)
	}
	if done, err := put(first, "/a", 0); done || err != nil {
		t.Errorf("a conflict in its term: %v, %v, want what any conflict gets", done, err)
	}
	second, err := stores.BeginTerm(t.Context(), "work", "two")
	must(err)
	if _, err := stores.BeginTerm(t.Context(), "other work", "two"); err != nil {
		t.Fatal(err)
	}
	for key, reason := range map[string]string{"/a": "a conflict", "/b": "a write that nothing else refuses"} {
		if done, err := put(first, key, 0); done || !errors.Is(err, election.ErrLost) {
			t.Errorf("after its term, %s: %v, %v, want %v", reason, done, err, election.ErrLost)
		}
	}
	r, err := client.Get(t.Context(), "/b")
	must(err)
	if r.Count > 0 {
		t.Error("what was sent in an earlier term is written")
	}
	if done, err := put(second, "/b", 0); !done || err != nil {
		t.Errorf("in the next term: %v, %v", done, err)
	}
}
