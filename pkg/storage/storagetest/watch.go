package storagetest

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func testWatchHistory(t *testing.T, h *harness) {
	before := h.create(t, "/t/before", "1")
	one := h.create(t, "/t/a", "1")
	h.create(t, "/other", "1")
	two := h.update(t, "/t/a", "2", one)
	past := h.watch(t, "/t/", before+1)
	now := h.watch(t, "/t/", 0)
	future := h.watch(t, "/t/", two+2)
	three := h.remove(t, "/t/a", two)
	four := h.create(t, "/t/a", "4")
	want := []string{
		fmt.Sprintf("create /t/a=1 at %d", one),
		fmt.Sprintf("put /t/a=2 at %d was 1", two),
		fmt.Sprintf("delete /t/a= at %d was 2", three),
		fmt.Sprintf("create /t/a=4 at %d", four),
	}
	expectSame(t, "a watch from the past has every event from there on, once", want, describeAll(past.events(t, 4)))
	expectSame(t, "a watch from the future has none before it", want[3:], describeAll(future.events(t, 1)))
	// The watch without a revision began at some time before the last events.
	events := now.events(t, 1)
	for events[len(events)-1].Kv.ModRevision < four {
		events = append(events, now.events(t, 1)...)
	}
	if events[0].Kv.ModRevision <= two {
		t.Errorf("a watch from now on has %s, which is older", describe(events[0]))
	}
}

func testWatchPrevious(t *testing.T, h *harness) {
	one := h.create(t, "/t/a", "1")
	two := h.update(t, "/t/a", "2", one)
	ctx := clientv3.WithRequireLeader(t.Context())
	without := &watcher{answers: h.client.Watch(ctx, "/t/a", clientv3.WithRev(two)), patience: h.suite.patience}
	if e := without.events(t, 1)[0]; e.PrevKv != nil {
		t.Errorf("got %s, want no previous value: it was not requested", describe(e))
	}
	deletes := h.watch(t, "/t/", one, clientv3.WithFilterPut())
	gone := h.remove(t, "/t/a", two)
	want := []string{fmt.Sprintf("delete /t/a= at %d was 2", gone)}
	expectSame(t, "deletions only", want, describeAll(deletes.events(t, 1)))
}

// testWatchFarBack starts a watch further back than any storage keeps in
// memory, while new events keep coming.
func testWatchFarBack(t *testing.T, h *harness) {
	const old, fresh = 5000, 200
	first := h.create(t, "/t/start", "0")
	const writers = 8
	inParallel(writers, func(i int) {
		for j := range old / writers {
			h.create(t, fmt.Sprintf("/t/%d/%d", i, j), "1")
		}
	})
	w := h.watch(t, "/t/", first)
	for i := range fresh {
		h.create(t, fmt.Sprintf("/t/fresh/%d", i), "1")
	}
	seen := map[string]bool{}
	revision := int64(0)
	for _, e := range w.events(t, 1+old+fresh) {
		if e.Kv.ModRevision <= revision || seen[string(e.Kv.Key)] {
			t.Fatalf("%s after revision %d: out of order or twice", describe(e), revision)
		}
		revision = e.Kv.ModRevision
		seen[string(e.Kv.Key)] = true
	}
	if want := 1 + old + fresh; len(seen) != want {
		t.Errorf("got %d keys, want %d", len(seen), want)
	}
}

// testWatchStorm lists and watches while others write: nothing is lost between
// the list and the watch, and nothing comes twice. Half of the lists come in
// pages.
func testWatchStorm(t *testing.T, h *harness) {
	const writers, rounds, watchers = 4, 60, 12
	const every = writers * rounds / (watchers + 1) // how many writes after the watcher before it a watcher begins
	var group sync.WaitGroup
	var written atomic.Int64
	due, listed := make([]chan struct{}, watchers), make([]chan struct{}, watchers)
	for i := range due {
		due[i], listed[i] = make(chan struct{}), make(chan struct{})
	}
	for i := range writers {
		group.Go(func() {
			for j := range rounds {
				h.create(t, fmt.Sprintf("/t/%d/%d", j%7, i*rounds+j), "1")
				if n := int(written.Add(1)); n%every == 0 && n/every <= watchers {
					close(due[n/every-1])
					<-listed[n/every-1]
				}
			}
		})
	}
	for i := range watchers {
		group.Go(func() {
			select {
			case <-due[i]:
			case <-time.After(h.suite.patience):
				close(listed[i])
				t.Error("the writes have stopped")
				return
			}
			found, revision := h.listAll(t, int64(i%2*5), listed[i])
			for _, e := range h.watch(t, "/t/", revision+1).events(t, writers*rounds-found) {
				if e.Kv.ModRevision <= revision {
					t.Errorf("%s after revision %d", describe(e), revision)
					return
				}
				revision = e.Kv.ModRevision
			}
		})
	}
	group.Wait()
}

// testReadAfterEvent reads what each event tells, as controllers do that look again
// before they act: the read is not older than the event.
func testReadAfterEvent(t *testing.T, h *harness) {
	const writers, rounds, readers = 4, 600, 8
	var group sync.WaitGroup
	begin := h.create(t, "/t/start", "1")
	for range readers {
		w := h.watch(t, "/t/", begin+1)
		group.Go(func() {
			for read := 0; read < writers*rounds; {
				for _, e := range w.events(t, 1) {
					if r := h.get(t, string(e.Kv.Key), 0); r.KV == nil || r.Revision < e.Kv.ModRevision {
						t.Errorf("after the event %s a read is of revision %d and shows %v", describe(e), r.Revision, r.KV)
						return
					}
					read++
				}
			}
		})
	}
	inParallel(writers, func(i int) {
		for j := range rounds {
			h.create(t, fmt.Sprintf("/t/%d/%d", i, j), "1")
		}
	})
	group.Wait()
}

// listAll counts the keys below /t/ in pages of the size given, or in one, and
// returns the revision to watch from. It closes done, also after an error.
func (h *harness) listAll(t testing.TB, limit int64, done chan struct{}) (found int, revision int64) {
	defer close(done)
	for page := range h.pages(t, "/t/", limit) {
		found += len(page.Kvs)
		revision = cmp.Or(revision, page.Revision)
	}
	return found, revision
}

func testWatchCompacted(t *testing.T, h *harness) {
	one := h.create(t, "/t/a", "1")
	two := h.update(t, "/t/a", "2", one)
	three := h.update(t, "/t/a", "3", two)
	h.compact(t, three)
	r := h.watch(t, "/t/", one).next(t)
	if !errors.Is(r.Err(), rpctypes.ErrCompacted) || r.CompactRevision < three {
		t.Errorf("got %v at %d, want %v at %d", r.Err(), r.CompactRevision, rpctypes.ErrCompacted, three)
	}
}

// testWatchAfterCompact checks that a running watch survives compactions.
func testWatchAfterCompact(t *testing.T, h *harness) {
	const rounds = 20
	revision := h.create(t, "/t/a", "0")
	w := h.watch(t, "/t/", revision+1)
	for i := range rounds {
		before := revision
		revision = h.update(t, "/t/a", fmt.Sprint(i+1), revision)
		h.compact(t, before)
	}
	for i, e := range w.events(t, rounds) {
		if got, want := string(e.Kv.Value), fmt.Sprint(i+1); got != want {
			t.Fatalf("event %d is %s, want value %s: lost or repeated", i, describe(e), want)
		}
	}
	late := h.watch(t, "/t/", revision+1)
	h.update(t, "/t/a", "last", revision)
	if got := string(late.events(t, 1)[0].Kv.Value); got != "last" {
		t.Errorf("a watch that began after the compactions has %s first, want last", got)
	}
}

func testIndependentClients(t *testing.T, h *harness) {
	other := h.other(t)
	revision := h.create(t, "/t/a", "1")
	mine, theirs := h.watch(t, "/t/", revision), other.watch(t, "/t/", revision)
	mine.events(t, 1)
	theirs.events(t, 1)
	hangUp(t, other.client)
	theirs.expectEnd(t)
	h.update(t, "/t/a", "2", revision)
	if got := string(mine.events(t, 1)[0].Kv.Value); got != "2" {
		t.Errorf("got %s, want 2", got)
	}
}
