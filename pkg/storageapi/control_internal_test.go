package storageapi

import (
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storageapi/v1alpha1"
)

// behind is an informer that has not seen the last changes.
type behind struct {
	cache.SharedIndexInformer
	store cache.Store
}

// GetStore implements cache.SharedInformer.
func (b behind) GetStore() cache.Store { return b.store }

// TestCurrent: an EtcdStorage that seems to be moving or to go is looked at as it is now.
func TestCurrent(t *testing.T) {
	t.Parallel()
	l := lend(t, EtcdStorages{}, nil)
	now := l.create(t, named("a"))
	for what, change := range map[string]func(*v1alpha1.EtcdStorage){
		"is elsewhere":   func(s *v1alpha1.EtcdStorage) { s.Status.Storage = "other" },
		"has just moved": func(s *v1alpha1.EtcdStorage) { s.Status.PreviousStorage = "other" },
		"is deleted":     func(s *v1alpha1.EtcdStorage) { s.DeletionTimestamp = &metav1.Time{Time: time.Now()} },
	} {
		then := now.DeepCopy()
		change(then)
		store := cache.NewStore(cache.MetaNamespaceKeyFunc)
		if err := store.Add(then); err != nil {
			t.Fatal(err)
		}
		c := &controller{lending: &lending{client: l.lent, informer: behind{store: store}}}
		got, err := c.current(t.Context(), "a")
		if err != nil || got.Status.Storage != ownStorage || got.Status.PreviousStorage != "" || got.DeletionTimestamp != nil {
			t.Errorf("it %s: %+v, %v, want it as it is", what, got, err)
		}
		then.Name = "gone"
		if err := store.Add(then); err != nil {
			t.Fatal(err)
		}
		if got, err := c.current(t.Context(), "gone"); got != nil || err != nil {
			t.Errorf("one that is gone and %s: %+v, %v", what, got, err)
		}
	}
}

// TestManyMoved: also of many keys the revisions go on in another storage.
func TestManyMoved(t *testing.T) {
	t.Parallel()
	const many = 10_000
	l := lend(t, EtcdStorages{Max: Limits{WritesPerSecond: many}, Storages: map[string]controlplane.Storage{"other": memory.Store{}}}, nil)
	s := l.create(t, named("a"))
	c := l.connect(t, s)
	for n := range progressEvery / 100 * 115 / 100 {
		var ops []clientv3.Op
		for i := range 100 {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("k%d-%d", n, i), "x"))
		}
		if _, err := c.Txn(t.Context()).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 1000 {
		put(t, c, "k", fmt.Sprint(n))
	}
	before, err := c.Get(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"other", "default"} {
		if err := l.lent.Patch("application/merge-patch+json").Resource("etcdstorages").Name("a").Body(fmt.Appendf(nil, `{"spec":{"storage":%q}}`, to)).
			Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
		l.follow(t, "a", "moved", func(s *v1alpha1.EtcdStorage) bool {
			return s != nil && s.Status.Storage == to && s.Status.PreviousStorage == "" && isReadyFor(s, v1alpha1.ReasonCertificatesWritten)
		})
		var after *clientv3.GetResponse
		again(t, "read", func() (err error) { after, err = c.Get(t.Context(), "k"); return err })
		if after.Header.Revision <= before.Header.Revision || after.Kvs[0].ModRevision <= before.Kvs[0].ModRevision {
			t.Errorf("in %s: revision %d, that of the key %d; before %d, %d", to,
				after.Header.Revision, after.Kvs[0].ModRevision, before.Header.Revision, before.Kvs[0].ModRevision)
		}
		before = after
	}
}
