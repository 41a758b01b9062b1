package storagetest

import (
	"fmt"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// testWatchReplay has 16 writers while watches run. Each watch, from any
// revision, has the same events in the same order; together they are all
// writes.
func testWatchReplay(t *testing.T, h *harness) {
	const rounds = 30
	keys := busyKeys()
	before := h.create(t, "/t/first", "1")
	live := h.watch(t, "/t/", before+1)
	var mu sync.Mutex
	wrote := map[int64]string{}
	inParallel(len(keys), func(i int) {
		h.write(t, keys[i], 0, rounds, func(revision int64) {
			mu.Lock()
			defer mu.Unlock()
			wrote[revision] = keys[i]
		})
	})
	n := len(keys) * rounds
	all := history(live.events(t, n))
	last := before
	values := map[string]string{}
	for _, e := range all {
		key := string(e.Kv.Key)
		if e.Kv.ModRevision <= last || wrote[e.Kv.ModRevision] != key {
			t.Fatalf("%s after revision %d: out of order, or never written", describe(e), last)
		}
		last = e.Kv.ModRevision
		was, existed := values[key]
		if had := e.PrevKv != nil; had != existed || had && string(e.PrevKv.Value) != was {
			t.Fatalf("%s, want the value before, %q", describe(e), was)
		}
		if e.Type == clientv3.EventTypeDelete {
			delete(values, key)
		} else {
			values[key] = string(e.Kv.Value)
		}
	}
	for _, from := range []int{0, 1, n / 3, n / 2, n - 1} {
		again := h.record(t, "/t/", all[from].Kv.ModRevision, n-from)
		expectSame(t, fmt.Sprintf("from event %d on, once more", from), describeAll(all[from:]), describeAll(again))
	}
	for _, key := range keys[:2] {
		var own []string
		for _, e := range all {
			if string(e.Kv.Key) == key {
				own = append(own, describe(e))
			}
		}
		expectSame(t, "a watch of "+key+" alone", own, describeAll(h.record(t, key, before, len(own))))
	}
	// No event comes after the last one.
	h.create(t, "/t/last", "1")
	if got, want := describe(live.events(t, 1)[0]), fmt.Sprintf("create /t/last=1 at %d", last+1); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
