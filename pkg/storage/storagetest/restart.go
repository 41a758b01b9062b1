package storagetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
)

func testRestart(t *testing.T, suite *suite) {
	d := suite.open(t)
	const rounds, keys = 4, 200
	want := map[string]string{}
	var last int64
	for round := range rounds {
		h := suite.start(t, d)
		r := h.list(t, "/t/", kubernetes.ListOptions{})
		if r.Revision < last {
			t.Errorf("round %d begins at revision %d, but the one before ended at %d", round, r.Revision, last)
		}
		got := map[string]string{}
		for _, kv := range r.Kvs {
			got[string(kv.Key)] = string(kv.Value)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("round %d: got %v, want %v", round, got, want)
		}
		if last > 0 {
			// History outlives the server too.
			e := h.watch(t, "/t/", last).events(t, 1)[0]
			if e.Kv.ModRevision != last {
				t.Errorf("watch from %d: got %s", last, describe(e))
			}
		}
		for i := range keys {
			key, value := fmt.Sprintf("/t/%d", i), fmt.Sprintf("%d in round %d", i, round)
			var revision int64
			if kv := h.get(t, key, 0).KV; kv != nil {
				revision = kv.ModRevision
			}
			last = h.update(t, key, value, revision)
			want[key] = value
		}
		stop(t, h.storage)
	}
}

func testSecondServer(t *testing.T, suite *suite) {
	d := suite.open(t)
	h := suite.start(t, d)
	second := d.Open()
	begin := time.Now()
	err := second.Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("got %v, want an error that says it is in use", err)
	}
	if waited := time.Since(begin); waited > 30*time.Second { // else it waits until the first lease ends
		t.Errorf("the error took %v, want it at once", waited)
	}
	stop(t, second)
	h.create(t, "/t/a", "1")
	stop(t, h.storage)
	third := suite.start(t, d)
	if third.get(t, "/t/a", 0).KV == nil {
		t.Error("the third server does not find what the first wrote")
	}
}

// testCompactedRestart compacts and starts again: compacted revisions stay so,
// and the others can still be read and watched.
func testCompactedRestart(t *testing.T, suite *suite) {
	d := suite.open(t)
	before := suite.start(t, d)
	one := before.create(t, "/t/a", "1")
	two := before.update(t, "/t/a", "2", one)
	three := before.update(t, "/t/a", "3", two)
	before.compact(t, two)
	stop(t, before.storage)
	h := suite.start(t, d)
	_, err := h.client.List(t.Context(), "/t/", kubernetes.ListOptions{Revision: one})
	expectError(t, "list at a compacted revision", err, rpctypes.ErrCompacted)
	r := h.watch(t, "/t/", one).next(t)
	expectError(t, "watch from a compacted revision", r.Err(), rpctypes.ErrCompacted)
	if kv := h.get(t, "/t/a", two).KV; kv == nil || string(kv.Value) != "2" {
		t.Errorf("get at %d: got %v, want 2", two, kv)
	}
	if e := h.record(t, "/t/", three, 1)[0]; e.Kv.ModRevision != three || string(e.Kv.Value) != "3" {
		t.Errorf("watch: got %s, want the value 3", describe(e))
	}
	if next := h.update(t, "/t/a", "4", three); next <= three {
		t.Errorf("revision %d after %d", next, three)
	}
}

// testLeaseRestart starts the storage again and again until a key with a lease
// is gone. A lease that started again each time would never end.
func testLeaseRestart(t *testing.T, suite *suite) {
	const seconds, most = 5, 30
	d := suite.open(t)
	h := suite.start(t, d)
	kept := h.create(t, "/t/kept", "1")
	l := h.lease(t, seconds, "/t/leased")
	list := h.list(t, "/t/", kubernetes.ListOptions{})
	for starts := 1; ; starts++ {
		stop(t, h.storage)
		h = suite.start(t, d)
		if suite.renewsLeases {
			break
		}
		w := h.watch(t, "/t/", list.Revision+1, clientv3.WithFilterPut())
		select {
		case <-w.answers:
		case <-time.After(time.Second):
		}
		w.cancel()
		if h.get(t, "/t/leased", 0).KV == nil {
			break
		}
		if starts == most {
			t.Fatalf("a key with a lease of %d s still exists after %d starts of a second or more: each start renews the lease", seconds, starts)
		}
	}
	if len(list.Kvs) == 2 { // else it went before the first stop
		h.watch(t, "/t/", list.Revision+1, clientv3.WithFilterPut()).expectDelete(t, l, "/t/leased")
	}
	if kv := h.get(t, "/t/kept", 0).KV; kv == nil || kv.ModRevision != kept {
		t.Errorf("the key without a lease is %v, want it kept", kv)
	}
}
