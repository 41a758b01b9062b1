package feed_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/storage/value"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/feed"
	"github.com/sailplane-dev/sailplane/pkg/internal/leaktest"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

func storages(t *testing.T) map[string]controlplane.Storage {
	return map[string]controlplane.Storage{
		"memory": memory.Store{},
		"sqlite": sqlite.File{Path: t.TempDir() + "/state.db"},
		"etcd":   etcd.Embedded{Dir: t.TempDir()},
	}
}

// log is what a feed reported.
type log struct {
	mu    sync.Mutex
	lines []string
}

func (l *log) add(before, after *feed.Object) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case before == nil:
		l.lines = append(l.lines, "+"+after.Name)
	case after == nil:
		l.lines = append(l.lines, "-"+before.Name)
	default:
		l.lines = append(l.lines, "="+after.Name)
	}
}

// TestFeed follows writes of both encodings on every storage.
func TestFeed(t *testing.T) {
	for name, d := range storages(t) {
		t.Run(name, func(t *testing.T) {
			client, f, l := start(t, d, func(c *clientv3.Client) {
				put(t, c, "/registry/things.example.com/things/shop/before", thing("shop", "before", "u-1"))
			}, nil)
			put(t, client, "/registry/configmaps/shop/cm", configMap(t, "shop", "cm", "0f8fad5b-d9cb-469f-a165-70867728950e", "u-1"))
			put(t, client, "/registry/things.example.com/things/shop/after", thing("shop", "after", "u-2", "u-1", "u-9"))
			put(t, client, "/registry/wholes.example.com/wholes/whole", thing("", "whole", "u-3"))
			put(t, client, "/registry/compact_rev_key", []byte("7"))
			put(t, client, "/elsewhere/configmaps/shop/cm", configMap(t, "shop", "other", "u-4"))
			catchUp(t, f)
			things := schema.GroupResource{Group: "things.example.com", Resource: "things"}
			if n := f.Count("shop", things); n != 2 {
				t.Errorf("%d things in shop, want 2", n)
			}
			want := feed.Total{Objects: 2}
			for key, value := range map[string][]byte{
				"/registry/things.example.com/things/shop/before": thing("shop", "before", "u-1"),
				"/registry/things.example.com/things/shop/after":  thing("shop", "after", "u-2", "u-1", "u-9"),
			} {
				want.Bytes += int64(len(key) + len(value))
			}
			if totals := f.Totals(); totals[things] != want || len(totals) != 3 {
				t.Errorf("totals: %v, want %v of things, and three resources", totals, want)
			}
			wholes := schema.GroupResource{Group: "wholes.example.com", Resource: "wholes"}
			if all := f.Counts(""); len(all) != 1 || all[wholes].Objects != 1 || all[wholes].Bytes != f.Bytes("") {
				t.Errorf("cluster-scoped: %v, want one whole of %d bytes", all, f.Bytes(""))
			}
			if n, counts := f.Bytes("shop"), f.Counts("shop"); n != want.Bytes+counts[schema.GroupResource{Resource: "configmaps"}].Bytes {
				t.Errorf("shop has %d bytes, want those of %v", n, counts)
			}
			cm := f.ByUID(feed.UIDOf("0f8fad5b-d9cb-469f-a165-70867728950e"))
			if cm == nil || cm.Name != "cm" || cm.Namespace != "shop" || cm.Type.Kind != corev1.SchemeGroupVersion.WithKind("ConfigMap") {
				t.Fatalf("by UID: %+v", cm)
			}
			if owned, blocks := cm.OwnedBy(feed.UIDOf("u-1")); !owned || !blocks {
				t.Errorf("the ConfigMap is owned %v, blocks %v", owned, blocks)
			}
			if n := len(f.Dependents(feed.UIDOf("u-1"))); n != 2 {
				t.Errorf("%d dependents, want 2", n)
			}
			drop(t, client, "/registry/configmaps/shop/cm")
			put(t, client, "/registry/things.example.com/things/shop/after", thing("shop", "after", "u-2", "u-9"))
			catchUp(t, f)
			if n := len(f.Dependents(feed.UIDOf("u-1"))); n != 0 {
				t.Errorf("%d dependents after they left, want 0", n)
			}
			if f.Len() != 3 || f.ByUID(cm.UID) != nil {
				t.Errorf("%d objects, want 3 and no ConfigMap", f.Len())
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			if got, want := fmt.Sprint(l.lines), "[+before +cm +after +whole -cm =after]"; got != want {
				t.Errorf("changes %s, want %s", got, want)
			}
		})
	}
}

// TestManyPages reads more than a page to begin with.
func TestManyPages(t *testing.T) {
	const n = 2345
	_, f, _ := start(t, memory.Store{}, func(c *clientv3.Client) {
		for i := range n {
			name := fmt.Sprint("t", i)
			put(t, c, "/registry/example.com/things/shop/"+name, thing("shop", name, name))
		}
	}, nil)
	catchUp(t, f)
	if f.Len() != n {
		t.Errorf("%d objects, want %d", f.Len(), n)
	}
}

// TestCatchUpTogether has many wait at the same time, over and over, while
// others write and the feed is slow.
func TestCatchUpTogether(t *testing.T) {
	const writes = 100
	for name, d := range storages(t) {
		t.Run(name, func(t *testing.T) {
			client, f, _ := start(t, d, func(*clientv3.Client) {}, nil)
			defer f.OnChange(func(_, _ *feed.Object) { time.Sleep(100 * time.Microsecond) })()
			var writers, waiters sync.WaitGroup
			written := make(chan struct{})
			for i := range 8 {
				writers.Go(func() {
					for j := range writes {
						name := fmt.Sprintf("t-%d-%d", i, j)
						put(t, client, "/registry/example.com/things/shop/"+name, thing("shop", name, name))
					}
				})
				waiters.Go(func() {
					for wait := true; wait; {
						select {
						case <-written:
							wait = false
						default:
						}
						catchUp(t, f)
					}
				})
			}
			writers.Wait()
			close(written)
			waiters.Wait()
			if f.Len() != 8*writes {
				t.Errorf("%d objects, want %d", f.Len(), 8*writes)
			}
		})
	}
}

// TestHistory: bytes that were replaced or deleted are history until the storage is
// compacted after them.
func TestHistory(t *testing.T) {
	const key = "/registry/example.com/things/shop/a"
	client, f, _ := start(t, memory.Store{}, func(*clientv3.Client) {}, nil)
	value := thing("shop", "a", "u-1")
	one := int64(len(key) + len(value))
	var revisions []int64
	for range 2000 {
		put(t, client, key, value)
		catchUp(t, f)
		revisions = append(revisions, f.ByUID(feed.UIDOf("u-1")).Revision)
	}
	if got, want := f.hub.History(0), 1999*one; got != want {
		t.Errorf("history has %d bytes, want %d", got, want)
	}
	// Of what was long ago the feed knows in steps how much it was.
	if got, want := f.hub.History(revisions[999]), 1000*one; got < want || got > want+100*one {
		t.Errorf("after a compaction of the half history has %d bytes, want %d or a little more", got, want)
	}
	drop(t, client, key)
	catchUp(t, f)
	if got := f.hub.History(revisions[1999]); got != one {
		t.Errorf("after a deletion history has %d bytes, want %d", got, one)
	}
	if got := f.hub.History(revisions[1999] + 1); got != 0 {
		t.Errorf("after a compaction of everything history has %d bytes", got)
	}
}

// silent is a storage whose watches bring nothing.
type silent struct{ controlplane.Storage }

// Open implements controlplane.Storage.
func (s silent) Open() controlplane.Backend { return silentBackend{s.Storage.Open()} }

type silentBackend struct{ controlplane.Backend }

// Client implements controlplane.Backend.
func (b silentBackend) Client() (*clientv3.Client, error) {
	c, err := b.Backend.Client()
	if err == nil {
		c.Watcher = silentWatcher{c.Watcher}
	}
	return c, err
}

type silentWatcher struct{ clientv3.Watcher }

// Watch implements clientv3.Watcher.
func (silentWatcher) Watch(ctx context.Context, _ string, _ ...clientv3.OpOption) clientv3.WatchChan {
	never := make(chan clientv3.WatchResponse)
	context.AfterFunc(ctx, func() { close(never) })
	return never
}

// RequestProgress implements clientv3.Watcher.
func (silentWatcher) RequestProgress(context.Context) error { return nil }

// TestLag: the lag is how many writes the feed's watch was not told, also of keys that
// it does not watch.
func TestLag(t *testing.T) {
	write := func(c *clientv3.Client) {
		put(t, c, "/registry/example.com/things/shop/a", thing("shop", "a", "u-1"))
		put(t, c, "/elsewhere/a", nil)
		put(t, c, "/elsewhere/b", nil)
	}
	client, f, _ := start(t, silent{memory.Store{}}, func(*clientv3.Client) {}, nil)
	write(client)
	if got, err := f.hub.Lag(t.Context()); got != 3 {
		t.Errorf("a watch that is told nothing has a lag of %d (%v), want 3", got, err)
	}
	for name, d := range storages(t) {
		t.Run(name, func(t *testing.T) {
			client, f, _ := start(t, d, func(*clientv3.Client) {}, nil)
			write(client)
			got, err := f.hub.Lag(t.Context())
			for end := time.Now().Add(2 * time.Minute); got > 0 && time.Now().Before(end); { // each waits a while
				got, err = f.hub.Lag(t.Context())
			}
			if got != 0 || err != nil {
				t.Errorf("the lag is %d (%v), and nothing is written", got, err)
			}
		})
	}
}

// mirror is the feed of the root plane, and what it has its events from.
type mirror struct {
	*feed.Feed
	hub *feed.Hub
}

// start runs a feed on a storage that holds something already.
func start(
	t *testing.T, d controlplane.Storage, before func(*clientv3.Client), transformers value.ResourceTransformers,
) (*clientv3.Client, mirror, *log) {
	t.Helper()
	s := d.Open()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	client, err := s.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	before(client)
	own, err := s.Client()
	if err != nil {
		t.Fatal(err)
	}
	hub := feed.NewHub(own, "/registry", transformers)
	f, l := mirror{hub.Feed(""), hub}, &log{}
	f.OnChange(l.add)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); hub.Run(ctx) }()
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx) })
	t.Cleanup(func() { cancel(); <-done; running.Wait() })
	catchUp(t, f)
	return client, f, l
}

func catchUp(t *testing.T, f mirror) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := f.CatchUp(ctx); err != nil {
		t.Error(err)
	}
}

// put writes as the API server does, in a transaction: kine takes nothing else.
func put(t *testing.T, c *clientv3.Client, key string, value []byte) {
	t.Helper()
	old, err := c.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	revision := int64(0)
	if len(old.Kvs) > 0 {
		revision = old.Kvs[0].ModRevision
	}
	txn := c.Txn(t.Context()).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).Then(clientv3.OpPut(key, string(value)))
	if revision > 0 {
		txn = txn.Else(clientv3.OpGet(key))
	}
	if r, err := txn.Commit(); err != nil || !r.Succeeded {
		t.Error(key, r, err)
	}
}

func drop(t *testing.T, c *clientv3.Client, key string) {
	t.Helper()
	old, err := c.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Txn(t.Context()).If(clientv3.Compare(clientv3.ModRevision(key), "=", old.Kvs[0].ModRevision)).
		Then(clientv3.OpDelete(key)).Else(clientv3.OpGet(key)).Commit()
	if err != nil || !r.Succeeded {
		t.Error(key, r, err)
	}
}

func thing(namespace, name, uid string, owners ...string) []byte {
	var refs bytes.Buffer
	for i, o := range owners {
		if i > 0 {
			refs.WriteByte(',')
		}
		fmt.Fprintf(&refs, `{"uid": %q}`, o)
	}
	return fmt.Appendf(nil, `{"spec": {"metadata": {"name": "no"}}, "apiVersion": "example.com/v1", "kind": "Thing",
		"metadata": {"name": %q, "namespace": %q, "uid": %q, "ownerReferences": [%s]}}`, name, namespace, uid, refs.String())
}

func configMap(t *testing.T, namespace, name, uid string, owners ...types.UID) []byte {
	t.Helper()
	cm := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)},
		Data:       map[string]string{"a": "b"},
	}
	for _, o := range owners {
		blocks := true
		cm.OwnerReferences = append(cm.OwnerReferences, metav1.OwnerReference{UID: o, BlockOwnerDeletion: &blocks})
	}
	var b bytes.Buffer
	if err := protobuf.NewSerializer(clientscheme.Scheme, clientscheme.Scheme).Encode(cm, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestPlanes: each plane sees its own objects, those from before it began and those of
// later, and of no other.
func TestPlanes(t *testing.T) {
	t.Parallel()
	for name, d := range storages(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := func(plane, resource, name string) string {
				return "/registry/.planes/" + resource + "/" + plane + "/shop/" + name
			}
			client, root, _ := start(t, d, func(c *clientv3.Client) {
				put(t, c, "/registry/example.com/things/shop/root", thing("shop", "root", "u-root"))
				for _, plane := range []string{"a", "ab", "b"} {
					put(t, c, key(plane, "example.com/things", plane+"-1"), thing("shop", plane+"-1", "u-1"+plane))
					put(t, c, key(plane, "_core/configmaps", plane+"-2"), thing("shop", plane+"-2", "u-2"+plane))
				}
				put(t, c, key("ab", "zoo.example.com/tigers", "ab-3"), thing("shop", "ab-3", "u-3ab"))
			}, nil)
			join := func(plane string) mirror {
				f := mirror{root.hub.Feed(plane), root.hub}
				ctx, cancel := context.WithCancel(context.Background())
				var running sync.WaitGroup
				running.Go(func() { f.Run(ctx) })
				t.Cleanup(func() { cancel(); running.Wait() })
				catchUp(t, f)
				return f
			}
			a := join("a")
			put(t, client, key("ab", "new.example.com/things", "ab-4"), thing("shop", "ab-4", "u-4ab"))
			put(t, client, key("a", "new.example.com/things", "a-4"), thing("shop", "a-4", "u-4a"))
			drop(t, client, key("a", "example.com/things", "a-1"))
			ab := join("ab")
			for f, want := range map[mirror][]string{
				root: {"things.example.com root"},
				a:    {"configmaps a-2", "things.new.example.com a-4"},
				ab:   {"configmaps ab-2", "things.example.com ab-1", "things.new.example.com ab-4", "tigers.zoo.example.com ab-3"},
			} {
				catchUp(t, f)
				var got []string
				for o := range f.All() {
					got = append(got, o.Type.Resource.String()+" "+o.Name)
				}
				slices.Sort(got)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}
