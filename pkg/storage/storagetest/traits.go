package storagetest

import (
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
)

// testMaxOps writes as many keys in a transaction as the storage claims to take.
// With one more it is refused, and nothing is written.
func testMaxOps(t *testing.T, h *harness) {
	n := max(h.described.Traits().MaxOps, 1)
	write := func(prefix string, n int) (*clientv3.TxnResponse, error) {
		var keys []string
		for i := range n {
			keys = append(keys, fmt.Sprintf("%s%03d", prefix, i))
		}
		return h.createAll(t, "1", keys)
	}
	fits, err := write("/t/fits/", n)
	if err != nil || !fits.Succeeded {
		t.Fatalf("write %d keys: got %v, %v, want them written: Traits().MaxOps says so", n, fits, err)
	}
	if r := h.list(t, "/t/fits/", kubernetes.ListOptions{}); len(r.Kvs) != n || r.Revision != fits.Header.Revision {
		t.Errorf("got %d keys at %d, want %d at %d", len(r.Kvs), r.Revision, n, fits.Header.Revision)
	}
	if r, err := write("/t/more/", n+1); err == nil {
		t.Errorf("write %d keys: got %v, want an error: Traits().MaxOps is less", n+1, r)
	}
	if r := h.list(t, "/t/more/", kubernetes.ListOptions{}); len(r.Kvs) != 0 || r.Revision != fits.Header.Revision {
		t.Errorf("a transaction that was refused left %v at revision %d", keysOf(r), r.Revision)
	}
}

// testShared opens the storage a second time while it runs. If it claims to be
// shared, each sees the writes of the other.
func testShared(t *testing.T, h *harness) {
	if !h.described.Traits().Shared {
		t.Log("it belongs to one server: Traits().Shared says so")
		return
	}
	second := h.suite.start(t, h.described)
	w := second.watch(t, "/t/", h.create(t, "/t/first", "1"))
	w.events(t, 1)
	one := h.create(t, "/t/a", "1")
	if kv := second.get(t, "/t/a", 0).KV; kv == nil || kv.ModRevision != one {
		t.Errorf("the second server reads %v, want revision %d", kv, one)
	}
	two := second.update(t, "/t/a", "2", one)
	if r := h.list(t, "/t/a", kubernetes.ListOptions{}); len(r.Kvs) != 1 || r.Kvs[0].ModRevision != two {
		t.Errorf("the first server lists %v, want revision %d", r.Kvs, two)
	}
	w.events(t, 2)
}

// testCheapProgress often asks a watch for its progress. A storage that answers
// by a clock, or with the next write, takes minutes.
func testCheapProgress(t *testing.T, h *harness) {
	if !h.described.Traits().CheapProgress {
		t.Log("answers may take a while: Traits().CheapProgress says so")
		return
	}
	const questions = 1000
	revision := h.create(t, "/t/a", "1")
	w := h.watch(t, "/t/", revision, clientv3.WithProgressNotify())
	w.events(t, 1)
	for range questions {
		if err := h.client.RequestProgress(clientv3.WithRequireLeader(t.Context())); err != nil {
			t.Fatal(err)
		}
		if r := w.next(t); !r.IsProgressNotify() || r.Header.Revision < revision {
			t.Fatalf("got %+v, want progress to %d", r, revision)
		}
	}
}
