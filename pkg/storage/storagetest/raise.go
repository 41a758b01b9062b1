package storagetest

import (
	"context"
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// testRaise has revisions go on above one that the storage has not reached: what it has is kept, what
// was read before is refused, and a start that asks for no more changes nothing.
func testRaise(t *testing.T, suite *suite) {
	d, ok := suite.open(t).(controlplane.Raising)
	if !ok {
		t.Log("its revisions cannot be raised: it is no controlplane.Raising")
		return
	}
	h := suite.start(t, d)
	before := h.create(t, "/t/a", "1")
	deleted := h.create(t, "/t/b", "1")
	last := h.remove(t, "/t/b", deleted)
	stop(t, h.storage)

	const lost = 1_000_000
	raised := suite.start(t, above{d, lost})
	r := raised.list(t, "/t/", kubernetes.ListOptions{})
	if len(r.Kvs) != 1 || string(r.Kvs[0].Value) != "1" || r.Kvs[0].ModRevision != before || r.Revision <= lost {
		t.Fatalf("got %v at revision %d, want /t/a of revision %d, above %d", r.Kvs, r.Revision, before, lost)
	}
	for _, old := range []int64{before, last, lost, r.Revision - 1} {
		if _, err := raised.client.KV.Get(t.Context(), "/t/a", clientv3.WithRev(old)); !errors.Is(err, rpctypes.ErrCompacted) {
			t.Errorf("a read at revision %d: got %v, want it compacted", old, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if got := <-raised.client.Watch(ctx, "/t/", clientv3.WithPrefix(), clientv3.WithRev(old)); got.CompactRevision == 0 {
			t.Errorf("a watch from revision %d: got %+v, want it refused", old, got)
		}
		cancel()
	}
	w := raised.watch(t, "/t/", r.Revision)
	next := raised.create(t, "/t/c", "1")
	if next <= r.Revision {
		t.Errorf("a write has revision %d, want it above %d", next, r.Revision)
	}
	if e := w.events(t, 1)[0]; e.Kv.ModRevision != next {
		t.Errorf("a watch from %d got %s, want revision %d", r.Revision, describe(e), next)
	}
	stop(t, raised.storage)

	for name, d := range map[string]controlplane.Storage{"raised again": above{d, lost}, "as ever": d} {
		again := suite.start(t, d)
		if r := again.list(t, "/t/", kubernetes.ListOptions{}); len(r.Kvs) != 2 || r.Revision < next || r.Revision > next+1 {
			t.Errorf("%s: got %d keys at revision %d, want 2 at %d", name, len(r.Kvs), r.Revision, next)
		}
		stop(t, again.storage)
	}
}

// above opens a storage above a revision.
type above struct {
	controlplane.Raising
	lost int64
}

// Open implements controlplane.Storage.
func (a above) Open() controlplane.Backend { return a.OpenAbove(a.lost) }
