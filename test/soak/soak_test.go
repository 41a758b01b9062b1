package soak

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/lifecycle"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

var length = flag.Duration("length", 20*time.Second, "how long clients work; a tenth of it with -short")

const (
	clients = 4
	// pause is the longest between two writes of a client.
	pause = 10 * time.Millisecond
	// limit is how long the collector may need when the clients are done.
	limit = 3 * time.Minute
)

const gadgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: gadgets, kind: Gadget}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`

// TestSoak has clients create, update and delete objects with owners at random,
// and whole namespaces. At the end exactly the right objects are left.
func TestSoak(t *testing.T) {
	storages := map[string]controlplane.Storage{
		"memory": memory.Store{},
		"sqlite": sqlite.File{Path: t.TempDir() + "/state.db"},
		"etcd":   etcd.Embedded{Dir: t.TempDir()},
	}
	for name, d := range storages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := start(t, d)
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			var all sync.WaitGroup
			for i := range uint64(clients) {
				all.Go(func() { (&worker{t: t, client: client, random: rand.New(rand.NewPCG(seed, i)), id: i}).run() })
			}
			all.Wait()
		})
	}
}

func start(t *testing.T, d controlplane.Storage) dynamic.Interface {
	t.Helper()
	s, err := controlplane.New("soak").Storage(d).With(
		core.Namespaces{}, core.ConfigMaps{}, core.Secrets{},
		crd.Definitions{FS: fstest.MapFS{"gadgets.yaml": {Data: []byte(gadgets)}}},
		lifecycle.GarbageCollection{},
	).Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-s.Ready():
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(s.ClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// worker is one client with its namespace, and another one after that.
type worker struct {
	t      *testing.T
	client dynamic.Interface
	random *rand.Rand
	id     uint64
	rounds int
	model  *model
	writes int
	done   []string // what was done, to be read after a failure
}

func (w *worker) run() {
	work := *length
	if testing.Short() {
		work /= 10
	}
	w.settle()
	for end := time.Now().Add(work); time.Now().Before(end); w.writes++ {
		if !w.step() {
			return
		}
		time.Sleep(time.Duration(w.random.Int64N(int64(pause))))
	}
	w.compare()
	if alive := len(w.model.alive()); !w.t.Failed() {
		w.t.Logf("client %d: %d writes, %d namespaces, %d objects left of %d in the last", w.id, w.writes, w.rounds, alive, w.model.made)
	}
}

// settle begins in a new namespace.
func (w *worker) settle() bool {
	w.rounds++
	w.model = &model{namespace: fmt.Sprintf("soak-%d-%d", w.id, w.rounds), random: w.random}
	ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	ns.SetName(w.model.namespace)
	_, err := w.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Create(w.t.Context(), ns, metav1.CreateOptions{})
	return w.ok("create namespace", err)
}

// step does one thing at random.
func (w *worker) step() bool {
	alive := w.model.alive()
	n := w.random.IntN(1000)
	switch {
	case n == 0:
		err := w.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).
			Delete(w.t.Context(), w.model.namespace, metav1.DeleteOptions{})
		return w.ok("delete namespace", err) && w.settle()
	case n < 500 || len(alive) < 5:
		return w.create(w.model.next())
	case n < 700:
		o := alive[w.random.IntN(len(alive))]
		o.owners = slices.DeleteFunc(w.model.owners(), func(p *object) bool { return p == o })
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"ownerReferences": o.references(w.random)}})
		if err != nil {
			return w.ok("encode", err)
		}
		_, err = w.of(o).Patch(w.t.Context(), o.name, types.MergePatchType, patch, metav1.PatchOptions{})
		return w.ok(fmt.Sprintf("update %s of %s", o, o.owners), err)
	default:
		o := alive[w.random.IntN(len(alive))]
		policy := w.model.policy(o)
		w.model.remove(o, policy)
		err := w.of(o).Delete(w.t.Context(), o.name, metav1.DeleteOptions{PropagationPolicy: &policy})
		w.model.forget()
		return w.ok(fmt.Sprintf("delete %s %s", o, policy), err) && (policy != metav1.DeletePropagationOrphan || w.gone(o))
	}
}

// gone waits until an object is gone. Before an orphaned owner is, a dependent
// whose other owners vanish may be left as well as deleted.
func (w *worker) gone(o *object) bool {
	for end := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		_, err := w.of(o).Get(w.t.Context(), o.name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return true
		case err == nil && time.Now().After(end):
			err = fmt.Errorf("not gone after %v%s", limit, w.metadata())
		case err == nil:
			continue
		}
		return w.ok("await the end of "+o.String(), err)
	}
}

func (w *worker) create(o *object) bool {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": o.kind}}
	if o.kind == "Gadget" {
		u.SetAPIVersion("example.com/v1")
	}
	u.SetName(o.name)
	u.SetOwnerReferences(o.references(w.random))
	got, err := w.of(o).Create(w.t.Context(), u, metav1.CreateOptions{})
	if err == nil {
		o.uid = got.GetUID()
		w.model.objects = append(w.model.objects, o)
	}
	return w.ok(fmt.Sprintf("create %s of %s", o, o.owners), err)
}

// ok reports an error: every write is of something that stays, so none may fail.
func (w *worker) ok(what string, err error) bool {
	w.done = append(w.done, what)
	if err != nil {
		w.fail(fmt.Sprintf("%s: %v", what, err))
	}
	return err == nil
}

func (w *worker) fail(what string) {
	last := w.done[max(0, len(w.done)-50):]
	w.t.Errorf("client %d after %d writes: %s; before that:\n%s", w.id, w.writes, what, strings.Join(last, "\n"))
}

func (w *worker) of(o *object) dynamic.ResourceInterface {
	return w.client.Resource(resources()[o.kind]).Namespace(w.model.namespace)
}

func resources() map[string]schema.GroupVersionResource {
	return map[string]schema.GroupVersionResource{
		"ConfigMap": {Version: "v1", Resource: "configmaps"},
		"Secret":    {Version: "v1", Resource: "secrets"},
		"Gadget":    {Group: "example.com", Version: "v1", Resource: "gadgets"},
	}
}

// compare waits until what is stored is what the model expects, and sees that
// it stays so. Namespaces that were deleted are gone.
func (w *worker) compare() {
	want := map[string]bool{}
	for _, o := range w.model.alive() {
		want[o.String()] = true
	}
	stable := 0
	for end := time.Now().Add(limit); ; time.Sleep(100 * time.Millisecond) {
		got := w.stored()
		if w.t.Failed() {
			return
		}
		if stable++; !maps.Equal(got, want) {
			stable = 0
		}
		if stable == 10 {
			return
		}
		if time.Now().After(end) {
			w.fail("objects (-want +got): " + cmp.Diff(want, got) + w.metadata())
			return
		}
	}
}

// metadata says who waits for whom.
func (w *worker) metadata() string {
	var all strings.Builder
	for kind, gvr := range resources() {
		list, err := w.client.Resource(gvr).Namespace(w.model.namespace).List(w.t.Context(), metav1.ListOptions{})
		if !w.ok("list "+kind, err) {
			return ""
		}
		for _, u := range list.Items {
			fmt.Fprintf(&all, "\n%s/%s: deleted %v, finalizers %v, owned by", kind, u.GetName(), u.GetDeletionTimestamp() != nil, u.GetFinalizers())
			for _, ref := range u.GetOwnerReferences() {
				fmt.Fprintf(&all, " %s/%s (blocks %v)", ref.Kind, ref.Name, *ref.BlockOwnerDeletion)
			}
		}
	}
	return all.String()
}

// stored are the objects there are, and namespaces that should be gone.
func (w *worker) stored() map[string]bool {
	all := map[string]bool{}
	for kind, gvr := range resources() {
		list, err := w.client.Resource(gvr).Namespace(w.model.namespace).List(w.t.Context(), metav1.ListOptions{})
		if !w.ok("list "+kind, err) {
			return nil
		}
		for _, u := range list.Items {
			all[kind+"/"+u.GetName()] = true
		}
	}
	list, err := w.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).List(w.t.Context(), metav1.ListOptions{})
	if !w.ok("list namespaces", err) {
		return nil
	}
	for _, u := range list.Items {
		for i := 1; i < w.rounds; i++ {
			if u.GetName() == fmt.Sprintf("soak-%d-%d", w.id, i) {
				all["Namespace/"+u.GetName()] = true
			}
		}
	}
	return all
}
