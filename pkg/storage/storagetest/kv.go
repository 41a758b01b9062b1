package storagetest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
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
	stale, err := h.client.OptimisticPut(t.Context(), "/t/a", []byte("x"), created, kubernetes.PutOptions{GetOnFailure: true})
	if err != nil || stale.Succeeded || stale.KV == nil || string(stale.KV.Value) != "2" || stale.KV.ModRevision != updated {
		t.Errorf("stale update: got %+v, %v, want a refusal with the present value", stale, err)
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

func testMissingKeys(t *testing.T, h *harness) {
	revision := h.create(t, "/other", "1")
	if r := h.get(t, "/t/none", 0); r.KV != nil || r.Revision < revision {
		t.Errorf("get: got %+v, want nothing at revision %d or later", r, revision)
	}
	if r := h.list(t, "/t/", kubernetes.ListOptions{}); len(r.Kvs) != 0 || r.Count != 0 || r.Revision < revision {
		t.Errorf("list: got %+v, want nothing at revision %d or later", r, revision)
	}
	put, err := h.client.OptimisticPut(t.Context(), "/t/none", []byte("x"), revision, kubernetes.PutOptions{GetOnFailure: true})
	if err != nil || put.Succeeded || put.KV != nil {
		t.Errorf("update: got %+v, %v, want a refusal", put, err)
	}
	del, err := h.client.OptimisticDelete(t.Context(), "/t/none", revision, kubernetes.DeleteOptions{GetOnFailure: true})
	if err != nil || del.Succeeded || del.KV != nil {
		t.Errorf("delete: got %+v, %v, want a refusal", del, err)
	}
}

func testPages(t *testing.T, h *harness) {
	const keys, limit = 25, 10
	for i := range keys {
		h.create(t, fmt.Sprintf("/t/%03d", i), fmt.Sprint(i))
	}
	h.create(t, "/u", "after the prefix")
	first := h.list(t, "/t/", kubernetes.ListOptions{Limit: limit})
	if len(first.Kvs) != limit || first.Count != keys {
		t.Fatalf("first page: got %d of %d keys, want %d of %d", len(first.Kvs), first.Count, limit, keys)
	}
	// What changes between pages is not seen: they are read at one revision.
	h.remove(t, "/t/020", h.get(t, "/t/020", 0).KV.ModRevision)
	h.create(t, "/t/0205", "new")
	var got, want []string
	page := first
	for {
		for _, kv := range page.Kvs {
			got = append(got, string(kv.Key)+"="+string(kv.Value))
		}
		if page.Count <= int64(len(page.Kvs)) {
			break
		}
		last := string(page.Kvs[len(page.Kvs)-1].Key)
		page = h.list(t, "/t/", kubernetes.ListOptions{Limit: limit, Continue: last + "\x00", Revision: first.Revision})
	}
	for i := range keys {
		want = append(want, fmt.Sprintf("/t/%03d=%d", i, i))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
	if n, err := h.client.Count(t.Context(), "/t/", kubernetes.CountOptions{}); err != nil || n != keys {
		t.Errorf("count: got %d, %v, want %d", n, err, keys)
	}
}

func testOldRevisions(t *testing.T, h *harness) {
	one := h.create(t, "/t/a", "1")
	two := h.update(t, "/t/a", "2", one)
	gone := h.remove(t, "/t/a", two)
	for revision, want := range map[int64]string{one: "1", two: "2"} {
		if kv := h.get(t, "/t/a", revision).KV; kv == nil || string(kv.Value) != want {
			t.Errorf("get at %d: got %v, want %s", revision, kv, want)
		}
		r := h.list(t, "/t/", kubernetes.ListOptions{Revision: revision})
		if len(r.Kvs) != 1 || string(r.Kvs[0].Value) != want || r.Revision < gone {
			t.Errorf("list at %d: got %v with revision %d, want %s with the current one", revision, r.Kvs, r.Revision, want)
		}
	}
	if kv := h.get(t, "/t/a", gone).KV; kv != nil {
		t.Errorf("get at %d: got %v, want nothing", gone, kv)
	}
	_, err := h.client.Kubernetes.Get(t.Context(), "/t/a", kubernetes.GetOptions{Revision: gone + 1000})
	if !errors.Is(err, rpctypes.ErrFutureRev) {
		t.Errorf("get in the future: got %v, want %v", err, rpctypes.ErrFutureRev)
	}
}

func testLargeValues(t *testing.T, h *harness) {
	value := strings.Repeat("0123456789abcdef", 1400<<10/16)
	w := h.watch(t, "/t/", h.create(t, "/t/small", "1")+1)
	h.create(t, "/t/large", value)
	if kv := h.get(t, "/t/large", 0).KV; kv == nil || string(kv.Value) != value {
		t.Error("get: the value changed")
	}
	if e := w.events(t, 1)[0]; string(e.Kv.Value) != value {
		t.Error("watch: the value changed")
	}
}

func testValuesAreCopies(t *testing.T, h *harness) {
	first := h.create(t, "/t/a", "value")
	spoil := func(b []byte) {
		for i := range b {
			b[i] = 'x'
		}
	}
	spoil(h.get(t, "/t/a", 0).KV.Value)
	spoil(h.list(t, "/t/", kubernetes.ListOptions{}).Kvs[0].Value)
	e := h.watch(t, "/t/", first).events(t, 1)[0]
	spoil(e.Kv.Value)
	second := h.update(t, "/t/a", "other", first)
	spoil(h.watch(t, "/t/", second).events(t, 1)[0].PrevKv.Value)
	if got := string(h.get(t, "/t/a", first).KV.Value); got != "value" {
		t.Errorf("a reader changed the stored value to %q", got)
	}
}

func testConcurrentWriters(t *testing.T, h *harness) {
	const writers, rounds = 8, 25
	revision := h.create(t, "/t/counter", "0")
	w := h.watch(t, "/t/", revision+1)
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for range rounds {
				if err := increment(t, h); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
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
	for {
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
}

// testConcurrentDeletes has several delete a key at once. Who comes late finds
// nothing there, and not the mark of the deletion.
func testConcurrentDeletes(t *testing.T, h *harness) {
	for i := range 20 {
		key := fmt.Sprintf("/t/%d", i)
		revision := h.create(t, key, "1")
		var deletes sync.WaitGroup
		var deleted atomic.Int32
		for range 8 {
			deletes.Go(func() {
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
		}
		deletes.Wait()
		if n := deleted.Load(); n != 1 {
			t.Errorf("%s was deleted %d times", key, n)
		}
	}
}

func testLeases(t *testing.T, h *harness) {
	kept := h.create(t, "/t/kept", "1")
	revision := h.lease(t, "/t/leased", "1")
	e := h.watch(t, "/t/", revision+1).events(t, 1)[0]
	if e.Type != clientv3.EventTypeDelete || string(e.Kv.Key) != "/t/leased" || string(e.PrevKv.Value) != "1" {
		t.Errorf("got %s, want the leased key deleted", describe(e))
	}
	if h.get(t, "/t/leased", 0).KV != nil || h.get(t, "/t/kept", 0).KV.ModRevision != kept {
		t.Error("want the leased key gone and the other one kept")
	}
}

// lease writes a new key that is deleted after a second, and returns its revision.
// On a busy machine the lease may end before the key is written: then there is
// another.
func (h *harness) lease(t testing.TB, key, value string) int64 {
	t.Helper()
	for {
		lease, err := h.client.Grant(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		r, err := h.client.OptimisticPut(t.Context(), key, []byte(value), 0, kubernetes.PutOptions{LeaseID: lease.ID})
		switch {
		case err == nil && r.Succeeded:
			return r.Revision
		case !errors.Is(err, rpctypes.ErrLeaseNotFound):
			t.Fatalf("put %s with a lease: %+v, %v", key, r, err)
		}
	}
}

func testCompaction(t *testing.T, h *harness) {
	one := h.create(t, "/t/a", "1")
	two := h.update(t, "/t/a", "2", one)
	gone := h.create(t, "/t/gone", "1")
	gone = h.remove(t, "/t/gone", gone)
	three := h.update(t, "/t/a", "3", two)
	if _, err := h.client.Compact(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	if _, err := h.client.Kubernetes.Get(t.Context(), "/t/a", kubernetes.GetOptions{Revision: one}); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("get before the compacted revision: got %v, want %v", err, rpctypes.ErrCompacted)
	}
	if _, err := h.client.List(t.Context(), "/t/", kubernetes.ListOptions{Revision: one}); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("list before the compacted revision: got %v, want %v", err, rpctypes.ErrCompacted)
	}
	if _, err := h.client.Compact(t.Context(), gone); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("compact twice: got %v, want %v", err, rpctypes.ErrCompacted)
	}
	if _, err := h.client.Compact(t.Context(), three+1000); !errors.Is(err, rpctypes.ErrFutureRev) {
		t.Errorf("compact in the future: got %v, want %v", err, rpctypes.ErrFutureRev)
	}
	if kv := h.get(t, "/t/a", gone).KV; kv == nil || string(kv.Value) != "2" {
		t.Errorf("get at the compacted revision: got %v, want 2", kv)
	}
	// Compact up to a deletion that is the last write: revisions go on rising.
	last := h.remove(t, "/t/a", three)
	if _, err := h.client.Compact(t.Context(), last); err != nil {
		t.Fatal(err)
	}
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
	case <-time.After(patience):
		t.Error("the watch delivers nothing")
	}
}
