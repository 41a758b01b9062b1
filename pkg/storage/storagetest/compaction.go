package storagetest

import (
	"fmt"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
)

func testCompaction(t *testing.T, h *harness) {
	one := h.create(t, "/t/a", "1")
	two := h.update(t, "/t/a", "2", one)
	gone := h.create(t, "/t/gone", "1")
	gone = h.remove(t, "/t/gone", gone)
	three := h.update(t, "/t/a", "3", two)
	h.compact(t, gone)
	_, err := h.client.Kubernetes.Get(t.Context(), "/t/a", kubernetes.GetOptions{Revision: one})
	expectError(t, "get before the compacted revision", err, rpctypes.ErrCompacted)
	_, err = h.client.List(t.Context(), "/t/", kubernetes.ListOptions{Revision: one})
	expectError(t, "list before the compacted revision", err, rpctypes.ErrCompacted)
	_, err = h.client.Compact(t.Context(), gone)
	expectError(t, "compact twice", err, rpctypes.ErrCompacted)
	_, err = h.client.Compact(t.Context(), three+1000)
	expectError(t, "compact in the future", err, rpctypes.ErrFutureRev)
	if kv := h.get(t, "/t/a", gone).KV; kv == nil || string(kv.Value) != "2" {
		t.Errorf("get at the compacted revision: got %v, want 2", kv)
	}
	// Compact up to a deletion that is the last write: revisions keep rising.
	last := h.remove(t, "/t/a", three)
	h.compact(t, last)
	if r := h.list(t, "/t/", kubernetes.ListOptions{}); r.Revision < last || len(r.Kvs) != 0 {
		t.Errorf("list: got %v at %d, want nothing at %d or later", r.Kvs, r.Revision, last)
	}
	if next := h.create(t, "/t/a", "4"); next <= last {
		t.Errorf("revision %d after %d", next, last)
	}
}

// testCompactionProtocol plays the transaction with which API servers agree on
// who compacts: the version of a key is a clock.
func testCompactionProtocol(t *testing.T, h *harness) {
	const key = "compact_rev_key"
	tick := func(version int64, value string) *clientv3.TxnResponse {
		t.Helper()
		r, err := h.client.Txn(t.Context()).
			If(clientv3.Compare(clientv3.Version(key), "=", version)).
			Then(clientv3.OpPut(key, value)).
			Else(clientv3.OpGet(key)).Commit()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := tick(0, "0"); !r.Succeeded {
		t.Fatalf("first tick: %v", r)
	}
	r := tick(0, "7")
	if r.Succeeded || r.Responses[0].GetResponseRange().Kvs[0].Version != 1 {
		t.Fatalf("late tick: got %v, want a refusal with version 1", r)
	}
	got, err := h.client.KV.Get(t.Context(), key)
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "0" {
		t.Fatalf("get: got %v, %v, want 0", got, err)
	}
	ctx := clientv3.WithRequireLeader(t.Context())
	answers := h.client.Watch(ctx, key, clientv3.WithRev(got.Header.Revision+1))
	if r := tick(1, "8"); !r.Succeeded {
		t.Fatalf("second tick: %v", r)
	}
	select {
	case a := <-answers:
		if len(a.Events) != 1 || string(a.Events[0].Kv.Key) != key || string(a.Events[0].Kv.Value) != "8" {
			t.Errorf("watch: got %v, want %s=8", a.Events, key)
		}
	case <-time.After(h.suite.patience):
		t.Error("the watch delivers nothing")
	}
}

// testCleanList acts like a client whose watch was refused: it lists again, and
// watches from there.
func testCleanList(t *testing.T, h *harness) {
	one := h.create(t, "/t/a", "1")
	gone := h.create(t, "/t/gone", "1")
	two := h.update(t, "/t/a", "2", one)
	last := h.remove(t, "/t/gone", gone)
	h.compact(t, last)
	r := h.watch(t, "/t/", one).next(t)
	expectError(t, "watch of what was compacted", r.Err(), rpctypes.ErrCompacted)
	list := h.list(t, "/t/", kubernetes.ListOptions{})
	if len(list.Kvs) != 1 || string(list.Kvs[0].Value) != "2" || list.Kvs[0].ModRevision != two ||
		list.Kvs[0].CreateRevision != one || list.Revision != last {
		t.Errorf("list: got %v at %d, want /t/a, created at %d and written at %d, at %d", list.Kvs, list.Revision, one, two, last)
	}
	three := h.update(t, "/t/a", "3", two)
	want := []string{fmt.Sprintf("put /t/a=3 at %d was 2", three)}
	expectSame(t, "a watch from the list on", want, describeAll(h.record(t, "/t/", list.Revision+1, 1)))
}
