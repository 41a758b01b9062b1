package storagetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
)

// testRevisions is the only writer: each write takes the next revision,
// whatever its key, and a request that writes nothing takes none.
func testRevisions(t *testing.T, h *harness) {
	first := h.create(t, "/t/a", "1")
	for i, write := range []func() int64{
		func() int64 { return h.create(t, "/u/a", "1") },
		func() int64 { return h.update(t, "/t/a", "2", first) },
		func() int64 { return h.create(t, "other", "1") },
		func() int64 { return h.remove(t, "/u/a", first+1) },
		func() int64 { return h.create(t, "/u/a", "again") },
	} {
		want := first + int64(i) + 1
		if got := write(); got != want {
			t.Fatalf("write %d has revision %d, want %d", i+1, got, want)
		}
		// Refused writes and reads take no revision.
		if refused := h.refused(t, "/t/a", want+5); refused.Revision != want {
			t.Errorf("refused write: got %+v, want it at %d", refused, want)
		}
		if got := h.get(t, "/u/a", 0).Revision; got != want {
			t.Errorf("get is at revision %d, want %d", got, want)
		}
		if got := h.list(t, "/none/", kubernetes.ListOptions{}).Revision; got != want {
			t.Errorf("list is at revision %d, want %d", got, want)
		}
	}
}

// testRevisionsOnce has 16 writers at once: no revision is used twice or left
// out, and a watch has one event for each.
func testRevisionsOnce(t *testing.T, h *harness) {
	const writers, rounds = 16, 40
	before := h.create(t, "/t/first", "1")
	revisions := make([][]int64, writers)
	inParallel(writers, func(i int) {
		for j := range rounds {
			revisions[i] = append(revisions[i], h.create(t, fmt.Sprintf("/t/%d/%d", i, j), "1"))
		}
	})
	for i, own := range revisions {
		if !slices.IsSorted(own) {
			t.Errorf("the revisions of writer %d do not grow: %v", i, own)
		}
	}
	all := slices.Sorted(slices.Values(slices.Concat(revisions...)))
	for i, revision := range all {
		if want := before + 1 + int64(i); revision != want {
			t.Fatalf("write %d of all has revision %d, want %d: each has its own", i, revision, want)
		}
	}
	for i, e := range h.record(t, "/t/", before+1, len(all)) {
		if e.Kv.ModRevision != all[i] {
			t.Fatalf("event %d is %s, want one at revision %d", i, describe(e), all[i])
		}
	}
}

// busyKeys returns the keys of a test's writers, one each.
func busyKeys() []string {
	var keys []string
	for i := range 16 {
		keys = append(keys, fmt.Sprintf("/t/%02d", i))
	}
	return keys
}

// write changes a key n times: creates, updates and deletes.
func (h *harness) write(t testing.TB, key string, revision int64, n int, wrote func(revision int64)) {
	t.Helper()
	exists := revision != 0
	for i := range n {
		switch {
		case exists && i%7 == 6:
			wrote(h.remove(t, key, revision))
			exists, revision = false, 0
		default:
			revision = h.update(t, key, fmt.Sprint(i), revision)
			wrote(revision)
			exists = true
		}
	}
}

// testNeverBack has clients read in every way while 16 others write. None of them
// gets a lower revision than before, and every read shows exactly the state at
// the revision it names.
func testNeverBack(t *testing.T, h *harness) {
	const readers, rounds, least = 4, 80, 25
	keys := busyKeys()
	before, stale := map[string]int64{}, map[string]int64{}
	for _, key := range keys {
		stale[key] = h.create(t, key, "0")
		before[key] = h.update(t, key, "1", stale[key])
	}
	begin := h.get(t, keys[0], 0).Revision
	var writing, reading sync.WaitGroup
	var left atomic.Int32
	left.Store(int32(len(keys)))
	for _, key := range keys {
		writing.Go(func() {
			defer left.Add(-1)
			h.write(t, key, before[key], rounds, func(int64) {})
		})
	}
	seen := make([][]observation, readers)
	for i := range readers {
		reading.Go(func() {
			r := &reader{harness: h.other(t), keys: keys, stale: stale, next: i, order: rand.New(rand.NewPCG(1, uint64(i)))}
			defer hangUp(t, r.client)
			for n := 0; (left.Load() > 0 || n < least) && r.read(t); n++ {
			}
			seen[i] = r.seen
		})
	}
	writing.Wait()
	reading.Wait()
	all := h.record(t, "/t/", begin+1, len(keys)*rounds)
	all.check(t, before, slices.Concat(seen...))
	t.Logf("%d reads beside %d writes", len(slices.Concat(seen...)), len(all))
}

// reader reads in one way after another and remembers what it saw.
type reader struct {
	*harness
	keys  []string
	stale map[string]int64 // revisions that keys had once
	order *rand.Rand       // the same in every run
	next  int
	last  observation
	seen  []observation
}

// read returns whether the revision did not go back.
func (r *reader) read(t testing.TB) bool {
	r.next++
	key := r.keys[r.next%len(r.keys)]
	ways := []func(testing.TB, string) observation{r.get, r.list, r.txn, r.count, r.page}
	s := ways[r.order.IntN(len(ways))](t, key)
	if s.revision < r.last.revision {
		t.Errorf("%s answers with revision %d, after %s had %d", s.what, s.revision, r.last.what, r.last.revision)
		return false
	}
	for key, revision := range s.found {
		if revision > s.revision {
			t.Errorf("%s answers with revision %d and %s of revision %d", s.what, s.revision, key, revision)
			return false
		}
	}
	r.last = s
	if s.found != nil {
		r.seen = append(r.seen, s)
	}
	return true
}

func (r *reader) get(t testing.TB, key string) observation {
	a := r.harness.get(t, key, 0)
	return sightOf("GET", a.Revision, key, a.KV)
}

// sightOf returns what a read of one key saw; kv is nil if the key does not
// exist.
func sightOf(what string, revision int64, key string, kv *mvccpb.KeyValue) observation {
	s := observation{what: what, revision: revision, key: key, found: map[string]int64{}}
	if kv != nil {
		s.found[key] = kv.ModRevision
	}
	return s
}

func (r *reader) list(t testing.TB, _ string) observation {
	a := r.harness.list(t, "/t/", kubernetes.ListOptions{})
	s := observation{what: "LIST", revision: a.Revision, found: map[string]int64{}}
	for _, kv := range a.Kvs {
		s.found[string(kv.Key)] = kv.ModRevision
	}
	return s
}

// txn sends a write that is refused; the answer has the current state.
func (r *reader) txn(t testing.TB, key string) observation {
	a := r.refused(t, key, r.stale[key])
	return sightOf("TXN", a.Revision, key, a.KV)
}

func (r *reader) count(t testing.TB, _ string) observation {
	a, err := r.client.KV.Get(t.Context(), "/t/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatalf("count: %v", err)
	}
	return observation{what: "COUNT", revision: a.Header.Revision}
}

// page lists some keys with a limit, as API servers do.
func (r *reader) page(t testing.TB, _ string) observation {
	a := r.harness.list(t, "/t/", kubernetes.ListOptions{Limit: 3})
	return observation{what: "LIST with a limit", revision: a.Revision}
}

// testAcknowledged has 16 writers, each with a client of its own, and another
// client that reads: a read after a write was acknowledged sees it, or a later
// one.
func testAcknowledged(t *testing.T, h *harness) {
	const rounds, least = 60, 25
	var newest atomic.Int64
	acknowledged := func(revision int64) {
		for old := newest.Load(); revision > old && !newest.CompareAndSwap(old, revision); old = newest.Load() {
		}
	}
	var writing sync.WaitGroup
	var left atomic.Int32
	keys := busyKeys()
	left.Store(int32(len(keys)))
	for _, key := range keys {
		writing.Go(func() {
			defer left.Add(-1)
			own := h.other(t)
			defer hangUp(t, own.client)
			own.write(t, key, 0, rounds, acknowledged)
		})
	}
	r := &reader{harness: h.other(t), keys: keys}
	for i := 0; left.Load() > 0 || i < least; i++ {
		want := newest.Load()
		ways := []func(testing.TB, string) observation{r.get, r.list, r.count, r.page}
		if s := ways[i%len(ways)](t, keys[i/len(ways)%len(keys)]); s.revision < want {
			t.Errorf("%s answers with revision %d, but %d was acknowledged before", s.what, s.revision, want)
			break
		}
	}
	writing.Wait()
}
