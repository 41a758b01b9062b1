package storagetest

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
)

func testTransactions(t *testing.T, h *harness) {
	created := h.create(t, "/t/a", "1")
	if r, err := h.client.OptimisticPut(t.Context(), "/t/a", []byte("x"), 0, kubernetes.PutOptions{}); err != nil || r.Succeeded {
		t.Errorf("create of a key that exists: got %+v, %v, want a refusal", r, err)
	}
	updated := h.update(t, "/t/a", "2", created)
	if updated <= created {
		t.Errorf("revision went from %d to %d", created, updated)
	}
	if stale := h.refused(t, "/t/a", created); stale.KV == nil || string(stale.KV.Value) != "2" || stale.KV.ModRevision != updated {
		t.Errorf("stale update: got %+v, want the present value", stale)
	}
	if none := h.refused(t, "/t/a", -1); none.KV == nil || string(none.KV.Value) != "2" {
		t.Errorf("update of a revision that no key has: got %+v, want the present value", none)
	}
	kv := h.get(t, "/t/a", 0).KV
	if kv == nil || string(kv.Value) != "2" || kv.CreateRevision != created || kv.ModRevision != updated {
		t.Errorf("get: got %v, want value 2 created at %d and updated at %d", kv, created, updated)
	}
	gone, err := h.client.OptimisticDelete(t.Context(), "/t/a", created, kubernetes.DeleteOptions{GetOnFailure: true})
	if err != nil || gone.Succeeded || gone.KV == nil || string(gone.KV.Value) != "2" {
		t.Errorf("stale delete: got %+v, %v, want a refusal with the present value", gone, err)
	}
	deleted := h.remove(t, "/t/a", updated)
	r := h.get(t, "/t/a", 0)
	if r.KV != nil || r.Revision < deleted {
		t.Errorf("get after delete: got %v at %d, want nothing at %d or later", r.KV, r.Revision, deleted)
	}
	again := h.create(t, "/t/a", "3")
	if kv := h.get(t, "/t/a", 0).KV; kv == nil || kv.CreateRevision != again {
		t.Errorf("get of a key created again: got %v, want created at %d", kv, again)
	}
}

func testConcurrentWriters(t *testing.T, h *harness) {
	const writers, rounds = 32, 10
	revision := h.create(t, "/t/counter", "0")
	w := h.watch(t, "/t/", revision+1)
	inParallel(writers, func(int) {
		for range rounds {
			if err := increment(t, h); err != nil {
				t.Error(err)
				return
			}
		}
	})
	if got, want := string(h.get(t, "/t/counter", 0).KV.Value), fmt.Sprint(writers*rounds); got != want {
		t.Errorf("counter is %s, want %s: writes were lost", got, want)
	}
	for i, e := range w.events(t, writers*rounds) {
		if got, want := string(e.Kv.Value), fmt.Sprint(i+1); got != want || e.Kv.ModRevision <= revision {
			t.Fatalf("event %d is %s, want value %s after revision %d", i, describe(e), want, revision)
		}
		revision = e.Kv.ModRevision
	}
}

// increment adds one to a counter the way API servers update objects.
func increment(t testing.TB, h *harness) error {
	r, err := h.client.Kubernetes.Get(t.Context(), "/t/counter", kubernetes.GetOptions{})
	if err != nil {
		return err
	}
	kv := r.KV
	for range 10_000 {
		var n int
		if _, err := fmt.Sscan(string(kv.Value), &n); err != nil {
			return err
		}
		put, err := h.client.OptimisticPut(t.Context(), "/t/counter", []byte(fmt.Sprint(n+1)), kv.ModRevision,
			kubernetes.PutOptions{GetOnFailure: true})
		if err != nil || put.Succeeded {
			return err
		}
		kv = put.KV
	}
	return errors.New("the key has another revision each time it is written")
}

// testConcurrentDeletes has several clients delete a key at once. The late ones
// find nothing there, not even the mark of the deletion.
func testConcurrentDeletes(t *testing.T, h *harness) {
	for i := range 20 {
		key := fmt.Sprintf("/t/%d", i)
		revision := h.create(t, key, "1")
		var deleted atomic.Int32
		inParallel(8, func(int) {
			r, err := h.client.OptimisticDelete(t.Context(), key, revision, kubernetes.DeleteOptions{GetOnFailure: true})
			switch {
			case err != nil:
				t.Errorf("delete %s: %v", key, err)
			case r.Succeeded:
				deleted.Add(1)
			case r.KV != nil && r.KV.ModRevision != revision:
				t.Errorf("delete %s: it is gone, and there is %q of revision %d", key, r.KV.Value, r.KV.ModRevision)
			}
		})
		if n := deleted.Load(); n != 1 {
			t.Errorf("%s was deleted %d times", key, n)
		}
	}
}

// testSeveralKeys writes several keys in one transaction, if the storage claims
// that it can: all or none. They get one revision, as in etcd, or consecutive
// ones, and no list at the newest has only some of them.
func testSeveralKeys(t *testing.T, h *harness) {
	n := h.described.Traits().MaxOps
	if n <= 1 {
		t.Log("a transaction writes one key: Traits().MaxOps says so")
		return
	}
	n = min(n, 10)
	before := h.create(t, "/t/other", "1")
	created := h.writeKeys(t, "1", make([]int64, n), true, before)
	stale := slices.Clone(created)
	stale[n-1]--
	h.writeKeys(t, "x", stale, false, created[n-1])
	updated := h.writeKeys(t, "2", created, true, created[n-1])
	var want []string
	for i, revision := range created {
		want = append(want, fmt.Sprintf("create %s=1 at %d", numbered(i), revision))
	}
	for i, revision := range updated {
		want = append(want, fmt.Sprintf("put %s=2 at %d was 1", numbered(i), revision))
	}
	expectSame(t, "events", want, describeAll(h.record(t, "/t/", created[0], 2*n)))
	for revision, want := range map[int64]string{created[n-1]: "1", updated[n-1]: "2"} {
		for _, kv := range h.list(t, "/t/0", kubernetes.ListOptions{Revision: revision}).Kvs {
			if string(kv.Value) != want {
				t.Errorf("at revision %d: got %v, want every key with %s", revision, kv, want)
			}
		}
	}
}

func numbered(i int) string { return fmt.Sprintf("/t/%02d", i) }

// writeKeys writes keys that have the revisions given in one transaction, and
// returns their new revisions. A transaction that must be refused changes
// nothing.
func (h *harness) writeKeys(t testing.TB, value string, expected []int64, succeed bool, before int64) []int64 {
	t.Helper()
	var compares []clientv3.Cmp
	var puts, gets []clientv3.Op
	for i, revision := range expected {
		compares = append(compares, clientv3.Compare(clientv3.ModRevision(numbered(i)), "=", revision))
		puts = append(puts, clientv3.OpPut(numbered(i), value))
		gets = append(gets, clientv3.OpGet(numbered(i)))
	}
	r, err := h.client.Txn(t.Context()).If(compares...).Then(puts...).Else(gets...).Commit()
	if err != nil {
		t.Fatal(err)
	}
	if r.Succeeded != succeed || len(r.Responses) != len(expected) || (r.Header.Revision > before) != succeed {
		t.Fatalf("write %s after revision %d: got %v, want success %v", value, before, r, succeed)
	}
	var revisions []int64
	for i, kv := range h.list(t, "/t/0", kubernetes.ListOptions{}).Kvs {
		if succeed && (string(kv.Value) != value || i > 0 && kv.ModRevision-revisions[i-1] > 1) {
			t.Errorf("after write %s: got %v", value, kv)
		}
		if !succeed && kv.ModRevision > before {
			t.Errorf("a transaction that was refused wrote %v", kv)
		}
		revisions = append(revisions, kv.ModRevision)
	}
	if len(revisions) != len(expected) || succeed && revisions[len(revisions)-1] != r.Header.Revision {
		t.Fatalf("after write %s at %d: got revisions %v", value, r.Header.Revision, revisions)
	}
	return revisions
}
