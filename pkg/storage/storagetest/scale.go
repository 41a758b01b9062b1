package storagetest

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
)

// fill creates the keys /t/000000 and so on with 32 writers, in transactions of
// several keys if the storage has them.
func (h *harness) fill(t testing.TB, n int, value string) {
	t.Helper()
	batch := min(max(h.described.Traits().MaxOps, 1), 100)
	var next atomic.Int64
	inParallel(32, func(int) {
		for i := int(next.Add(int64(batch))) - batch; i < n; i = int(next.Add(int64(batch))) - batch {
			var keys []string
			for j := i; j < min(i+batch, n); j++ {
				keys = append(keys, fmt.Sprintf("/t/%06d", j))
			}
			if r, err := h.createAll(t, value, keys); err != nil || !r.Succeeded {
				t.Errorf("create keys from %d on: %v, %v", i, r, err)
				return
			}
		}
	})
}

// createAll creates keys in one transaction.
func (h *harness) createAll(t testing.TB, value string, keys []string) (*clientv3.TxnResponse, error) {
	var compares []clientv3.Cmp
	var puts []clientv3.Op
	for _, key := range keys {
		compares = append(compares, clientv3.Compare(clientv3.ModRevision(key), "=", 0))
		puts = append(puts, clientv3.OpPut(key, value))
	}
	return h.client.Txn(t.Context()).If(compares...).Then(puts...).Commit()
}

// testManyObjects creates 50,000 keys below a prefix: a watch gets all of them
// meanwhile, and a list in pages too, in the order of the keys.
func testManyObjects(t *testing.T, h *harness) {
	if testing.Short() {
		t.Skip("50,000 objects take seconds to write; run without -short")
	}
	const keys, limit = 50_000, 1000
	w := h.watch(t, "/t/", h.create(t, "/s", "before")+1)
	h.fill(t, keys, string(bytes.Repeat([]byte("x"), 100)))
	h.create(t, "/u", "after")
	seen, last := map[string]bool{}, int64(0)
	for len(seen) < keys {
		for _, e := range w.events(t, 1) {
			if seen[string(e.Kv.Key)] || e.Kv.ModRevision < last {
				t.Fatalf("%s after revision %d: out of order or twice", describe(e), last)
			}
			seen[string(e.Kv.Key)], last = true, e.Kv.ModRevision
		}
	}
	h.expectCount(t, "/t/", keys)
	// A key is created between the pages, and none of them has it.
	found := 0
	for r := range h.pages(t, "/t/", limit) {
		for _, kv := range r.Kvs {
			if want := fmt.Sprintf("/t/%06d", found); string(kv.Key) != want {
				t.Fatalf("key %d is %s, want %s", found, kv.Key, want)
			}
			found++
		}
		if want := int64(keys - found + len(r.Kvs)); r.Count != want {
			t.Fatalf("page that ends at key %d: %d keys from its start on, want %d", found, r.Count, want)
		}
		if found == limit {
			h.create(t, "/t/000999a", "between")
		}
	}
	if found != keys {
		t.Errorf("the pages have %d keys, want %d", found, keys)
	}
	w.events(t, 1)
	if r := h.list(t, "/t/", kubernetes.ListOptions{}); len(r.Kvs) != keys+1 || r.Count != keys+1 {
		t.Errorf("list at once: got %d of %d keys, want %d", len(r.Kvs), r.Count, keys+1)
	}
}

// testSlowWatcher has watches that nobody reads, with a shared client and with
// one of their own. They stop neither writers nor other watches, and when they
// are read at last they have every event.
func testSlowWatcher(t *testing.T, h *harness) {
	const keys = 4000
	begin := h.create(t, "/s", "before") + 1
	other := h.other(t)
	slow := []*watcher{h.watch(t, "/t/", begin), other.watch(t, "/t/", begin)}
	busy := []*watcher{h.watch(t, "/t/", begin), h.other(t).watch(t, "/t/", begin)}
	var group sync.WaitGroup
	group.Go(func() { h.fill(t, keys, string(bytes.Repeat([]byte("x"), 2000))) })
	check := func(name string, w *watcher) {
		last := int64(0)
		for i, e := range w.events(t, keys) {
			if e.Kv.ModRevision < last {
				t.Errorf("%s: event %d, %s, is out of order", name, i, e.Kv.Key)
				return
			}
			last = e.Kv.ModRevision
		}
	}
	for _, w := range busy {
		group.Go(func() { check("a watch beside one that nobody reads", w) })
	}
	group.Wait()
	if n := len(h.list(t, "/t/", kubernetes.ListOptions{}).Kvs); n != keys {
		t.Errorf("list: got %d keys, want %d", n, keys)
	}
	for _, w := range slow {
		check("a watch that is read late", w)
	}
}

// testDay compacts as often as API servers do in a day, every five minutes.
// Compacted history does not take room for ever.
func testDay(t *testing.T, h *harness) {
	const (
		rounds, keys, size = 288, 64, 2048
		live               = keys * size
		written            = rounds * live
		// A storage may have allocated free room: etcd takes 16 MiB at a time.
		most = 16*live + 20<<20
	)
	if testing.Short() {
		t.Skip("288 compactions of what was written take seconds; run without -short")
	}
	value := string(bytes.Repeat([]byte("x"), size))
	revisions := make([]int64, keys)
	w := h.watch(t, "/t/", h.create(t, "/s", "before")+1)
	last := int64(0)
	var took [rounds]time.Duration // logged, not checked
	for round := range rounds {
		begin := time.Now()
		inParallel(16, func(writer int) {
			for i := writer; i < keys; i += 16 {
				revisions[i] = h.update(t, fmt.Sprintf("/t/%d", i), value, revisions[i])
			}
		})
		took[round] = time.Since(begin)
		if last > 0 { // up to the newest revision of a round ago, as API servers do
			h.compact(t, last)
		}
		last = h.get(t, "/t/0", 0).Revision
		w.events(t, keys)
	}
	r := h.list(t, "/t/", kubernetes.ListOptions{})
	if len(r.Kvs) != keys || r.Revision != last {
		t.Errorf("list: got %d keys at %d, want %d at %d", len(r.Kvs), r.Revision, keys, last)
	}
	for _, kv := range r.Kvs {
		var i int
		if _, err := fmt.Sscanf(string(kv.Key), "/t/%d", &i); err != nil || kv.ModRevision != revisions[i] || string(kv.Value) != value {
			t.Errorf("%s has revision %d (%v), want %d", kv.Key, kv.ModRevision, err, revisions[i])
		}
	}
	t.Logf("%d writes by 16 took %v at first and %v at last", keys, took[1], took[rounds-1])
	if h.suite.size == nil {
		return
	}
	taken := h.suite.size(h.described)
	t.Logf("%d KiB on disk for %d KiB, after %d KiB were written", taken>>10, live>>10, written>>10)
	if taken > most {
		t.Errorf("it takes %d bytes for %d of data after %d were written, want %d at most", taken, live, written, most)
	}
	if taken < live {
		t.Errorf("it takes %d bytes for %d of data: Size is wrong", taken, live)
	}
}
