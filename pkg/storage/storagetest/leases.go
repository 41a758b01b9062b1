package storagetest

import (
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
)

// leased is a lease and its earliest end: its TTL after the request for it.
type leased struct {
	id       clientv3.LeaseID
	earliest time.Time
}

func (h *harness) grant(t testing.TB, seconds int64) leased {
	t.Helper()
	asked := time.Now()
	r, err := h.client.Grant(t.Context(), seconds)
	if err != nil {
		t.Fatalf("lease of %d s: %v", seconds, err)
	}
	if r.TTL < seconds {
		t.Errorf("lease of %d s: got one of %d s", seconds, r.TTL)
	}
	return leased{id: r.ID, earliest: asked.Add(time.Duration(seconds) * time.Second)}
}

// lease writes new keys with one lease, as API servers do. On a busy machine the
// lease may expire before all keys are written: then they are written again.
func (h *harness) lease(t testing.TB, seconds int64, keys ...string) leased {
	t.Helper()
	for {
		l := h.grant(t, seconds)
		written := 0
		for _, key := range keys {
			r, err := h.client.OptimisticPut(t.Context(), key, []byte("1"), 0, kubernetes.PutOptions{LeaseID: l.id})
			if errors.Is(err, rpctypes.ErrLeaseNotFound) {
				break
			}
			if err != nil || !r.Succeeded {
				t.Fatalf("put %s with a lease: %+v, %v", key, r, err)
			}
			written++
		}
		if written == len(keys) {
			return l
		}
		h.awaitEmpty(t, keys[:written])
	}
}

// awaitEmpty waits until the keys are gone.
func (h *harness) awaitEmpty(t testing.TB, keys []string) {
	t.Helper()
	for _, key := range keys {
		if r := h.get(t, key, 0); r.KV != nil {
			h.watch(t, key, r.Revision+1, clientv3.WithFilterPut()).events(t, 1)
		}
	}
}

// expectDelete waits for events of the watch that delete the keys: no other
// event comes, and none before its time.
func (w *watcher) expectDelete(t testing.TB, l leased, keys ...string) {
	t.Helper()
	left := map[string]bool{}
	for _, key := range keys {
		left[key] = true
	}
	for _, e := range w.events(t, len(keys)) {
		if e.Type != clientv3.EventTypeDelete || !left[string(e.Kv.Key)] {
			t.Fatalf("got %s, want one of %v deleted", describe(e), left)
		}
		if e.PrevKv == nil || string(e.PrevKv.Value) != "1" {
			t.Errorf("got %s, want the value before", describe(e))
		}
		if early := time.Until(l.earliest); early > 0 {
			t.Errorf("%s goes %v before its time", e.Kv.Key, early)
		}
		delete(left, string(e.Kv.Key))
	}
}

// testLeases has keys go with their lease: the event is a deletion like any
// other.
func testLeases(t *testing.T, h *harness) {
	t.Parallel() // they wait, each on a storage of its own
	kept := h.create(t, "/t/kept", "1")
	keys := []string{"/t/leased/a", "/t/leased/b", "/t/leased/c"}
	l := h.lease(t, 3, keys...)
	list := h.list(t, "/t/leased/", kubernetes.ListOptions{})
	if len(list.Kvs) != len(keys) && time.Now().Before(l.earliest) {
		t.Errorf("got %v before their time, want %v", keysOf(list), keys)
	}
	w := h.watch(t, "/t/", list.Revision+1)
	w.expectDelete(t, l, keysOf(list)...)
	if r := h.list(t, "/t/", kubernetes.ListOptions{}); len(r.Kvs) != 1 || r.Kvs[0].ModRevision != kept {
		t.Errorf("got %v, want the leased keys gone and /t/kept left", keysOf(r))
	}
	if again := h.create(t, keys[0], "2"); again <= list.Revision {
		t.Errorf("a key that went is written again at %d, want more than %d", again, list.Revision)
	}
}

// testLeaseOrder grants a short lease after a long one.
func testLeaseOrder(t *testing.T, h *harness) {
	t.Parallel() // they wait, each on a storage of its own
	revision := h.create(t, "/t/kept", "1")
	long := h.lease(t, 6, "/t/long")
	short := h.lease(t, 2, "/t/short")
	w := h.watch(t, "/t/", revision+1, clientv3.WithFilterPut())
	w.expectDelete(t, short, "/t/short")
	w.expectDelete(t, long, "/t/long")
}

// testLeaseLeft writes keys again before their lease ends: without one, and with
// a longer one. The first lease has no effect on them then.
func testLeaseLeft(t *testing.T, h *harness) {
	t.Parallel() // they wait, each on a storage of its own
	begin := h.create(t, "/t/begin", "1")
	first := h.lease(t, 4, "/t/free", "/t/longer", "/t/leased")
	list := h.list(t, "/t/", kubernetes.ListOptions{})
	if len(list.Kvs) < 4 {
		t.Fatal("the lease ended while keys were written; the machine is too busy for this test")
	}
	revisions := map[string]int64{}
	for _, kv := range list.Kvs {
		revisions[string(kv.Key)] = kv.ModRevision
	}
	second := h.grant(t, 8)
	h.update(t, "/t/free", "1", revisions["/t/free"])
	r, err := h.client.OptimisticPut(t.Context(), "/t/longer", []byte("1"), revisions["/t/longer"],
		kubernetes.PutOptions{LeaseID: second.id, GetOnFailure: true})
	if err != nil || !r.Succeeded {
		t.Fatalf("put with another lease: %+v, %v", r, err)
	}
	w := h.watch(t, "/t/", begin+1, clientv3.WithFilterPut())
	w.expectDelete(t, first, "/t/leased")
	w.expectDelete(t, second, "/t/longer")
	if h.get(t, "/t/free", 0).KV == nil {
		t.Error("a key that was written again without a lease is gone")
	}
}

// testLeaseUnknown writes with a lease that does not exist: a key written so
// would stay for ever.
func testLeaseUnknown(t *testing.T, h *harness) {
	t.Parallel() // they wait, each on a storage of its own
	l := h.grant(t, 60)
	_, err := h.client.OptimisticPut(t.Context(), "/t/a", []byte("1"), 0, kubernetes.PutOptions{LeaseID: l.id + 1})
	expectError(t, "put with an unknown lease", err, rpctypes.ErrLeaseNotFound)
	if r := h.get(t, "/t/a", 0); r.KV != nil {
		t.Errorf("got %v, want nothing written", r.KV)
	}
}
