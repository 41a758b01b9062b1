package storageapi

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storageapi/v1alpha1"
)

// TestMoved: data moves to another storage and back while its client is connected. The
// client finds all of it again, its revisions go on, and what it knew of the past is
// refused, so that it reads anew.
func TestMoved(t *testing.T) {
	t.Parallel()
	l := lend(t, EtcdStorages{Storages: map[string]controlplane.Storage{"archive": memory.Store{}}}, nil)
	s := l.create(t, named("a"))
	c := l.connect(t, s)
	for i := range 2*copyKeys + 1 {
		put(t, c, fmt.Sprintf("/registry/%04d", i), "x")
	}
	lease, err := c.Grant(t.Context(), 3600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(t.Context(), "/events/a", "x", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"archive", ownStorage} {
		want := keysOf(t, c)
		last, err := c.Get(t.Context(), "/registry/0000")
		if err != nil {
			t.Fatal(err)
		}
		l.moved(t, to)
		if diff := cmp.Diff(want, keysOf(t, c)); diff != "" {
			t.Fatalf("in storage %s (-want +got):\n%s", to, diff)
		}
		now, err := c.Get(t.Context(), "/registry/0000")
		if err != nil {
			t.Fatal(err)
		}
		if now.Header.Revision <= last.Header.Revision || now.Kvs[0].ModRevision <= last.Header.Revision {
			t.Errorf("in storage %s the revision is %d, and it was %d", to, now.Kvs[0].ModRevision, last.Header.Revision)
		}
		old := clientv3.Compare(clientv3.ModRevision("/registry/0000"), "=", last.Kvs[0].ModRevision)
		if r, err := c.Txn(t.Context()).If(old).Then(clientv3.OpPut("/registry/0000", "y")).Commit(); err != nil || r.Succeeded {
			t.Errorf("a write that expects what was before: %+v, %v, want it refused", r, err)
		}
		if r := <-c.Watch(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithRev(last.Header.Revision)); !errors.Is(r.Err(), rpctypes.ErrCompacted) {
			t.Errorf("a watch from before: %+v, want that it is compacted", r)
		}
		watch := c.Watch(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithRev(now.Header.Revision+1))
		put(t, c, "/registry/new", to)
		if r := <-watch; r.Err() != nil || len(r.Events) != 1 || string(r.Events[0].Kv.Value) != to {
			t.Errorf("a watch from now on: %+v", r)
		}
		if e, err := c.Get(t.Context(), "/events/a"); err != nil || len(e.Kvs) != 1 || e.Kvs[0].Lease == 0 {
			t.Errorf("what had a lease has none: %+v, %v", e, err)
		}
	}
}

// moved has an EtcdStorage move, and waits until nothing is left where it was.
func (l *lender) moved(t testing.TB, to string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"storage":%q}}`, to)
	if err := l.lent.Patch(types.MergePatchType).Resource("etcdstorages").Name("a").Body(patch).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	l.follow(t, "a", "moved to "+to, func(s *v1alpha1.EtcdStorage) bool {
		return meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionReady) && s.Status.Storage == to && s.Status.PreviousStorage == ""
	})
	if to == ownStorage {
		return
	}
	own, _ := l.server.Stored()
	left, err := own.Get(t.Context(), "/registry/.internal/lent/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || left.Count != 0 {
		t.Errorf("in the storage that it left are %d keys, %v", left.Count, err)
	}
}

// TestMoveGivenUp: who asks for the storage of before gets it, nothing is lost, and no copy is left.
func TestMoveGivenUp(t *testing.T) {
	t.Parallel()
	l := lend(t, EtcdStorages{Storages: map[string]controlplane.Storage{"archive": memory.Store{}}}, nil)
	c := l.connect(t, l.create(t, named("a")))
	put(t, c, "/registry/a", "x")
	choose := func(storage string) {
		patch := fmt.Appendf(nil, `{"spec":{"storage":%q}}`, storage)
		if err := l.lent.Patch(types.MergePatchType).Resource("etcdstorages").Name("a").Body(patch).Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	choose("archive")
	l.follow(t, "a", "moving", isMoving)
	choose(ownStorage)
	l.moved(t, ownStorage)
	if diff := cmp.Diff(map[string]string{"/registry/a": "x"}, keysOf(t, c)); diff != "" {
		t.Errorf("after a move that was given up (-want +got):\n%s", diff)
	}
	l.moved(t, "archive")
	if diff := cmp.Diff(map[string]string{"/registry/a": "x"}, keysOf(t, c)); diff != "" {
		t.Errorf("after another one (-want +got):\n%s", diff)
	}
}
