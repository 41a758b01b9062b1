package lifecycle_test

import (
	"context"
	"fmt"
	"testing"
	"testing/fstest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/lifecycle"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

// limit is how long anything may take before it counts as never.
const limit = 2 * time.Minute

// crds are a namespaced and a cluster-scoped kind.
const crds = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: gadgets, kind: Gadget}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: realms.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {plural: realms, kind: Realm}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`

// plane is a running server.
type plane struct {
	plane  *controlplane.Plane
	client dynamic.Interface
	stop   func()
}

// onEveryStorage runs a test on a server with all parts on each storage.
func onEveryStorage(t *testing.T, test func(*testing.T, *plane)) {
	t.Helper()
	storages := map[string]controlplane.Storage{
		"memory": memory.Store{},
		"sqlite": sqlite.File{Path: t.TempDir() + "/state.db"},
		"etcd":   etcd.Embedded{Dir: t.TempDir()},
	}
	for name, d := range storages {
		t.Run(name, func(t *testing.T) { test(t, start(t, d)) })
	}
}

// start runs a server that waits for other servers longer than a test may take.
func start(t *testing.T, d controlplane.Storage, more ...controlplane.Part) *plane {
	t.Helper()
	return startWith(t, d, 10*limit, more...)
}

func startWith(t *testing.T, d controlplane.Storage, patience time.Duration, more ...controlplane.Part) *plane {
	t.Helper()
	p := &plane{}
	patient := controlplane.PartFunc(func(plan *controlplane.Plan) error {
		plan.AwaitServers(patience)
		plan.Work(controlplane.Work{Name: "plane of the test", Start: func(_ context.Context, of *controlplane.Plane) error {
			p.plane = of
			return nil
		}})
		return nil
	})
	s, err := controlplane.New("lifecycle").Storage(d).With(
		core.Namespaces{}, patient, core.ConfigMaps{}, core.Secrets{}, core.Events{},
		crd.Definitions{FS: fstest.MapFS{"crds.yaml": {Data: []byte(crds)}}},
		lifecycle.GarbageCollection{},
	).With(more...).Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stopped := false
	p.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("stop: %v", err)
		}
	}
	t.Cleanup(p.stop)
	select {
	case <-s.Ready():
	case err := <-ended:
		ended <- nil
		t.Fatalf("start: %v", err)
	}
	p.client, err = dynamic.NewForConfig(s.ClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// in is a resource by its short name here, in a namespace or in none.
func (p *plane) in(namespace, resource string) dynamic.ResourceInterface {
	gvr := schema.GroupVersionResource{Version: "v1", Resource: resource}
	if resource == "gadgets" || resource == "realms" {
		gvr.Group = "example.com"
	}
	return p.client.Resource(gvr).Namespace(namespace)
}

// create makes an object of a kind in a namespace, with owners.
func (p *plane) create(t *testing.T, namespace, kind, name string, owners ...metav1.OwnerReference) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("v1")
	if kind == "Gadget" || kind == "Realm" {
		u.SetAPIVersion("example.com/v1")
	}
	u.SetKind(kind)
	u.SetName(name)
	u.SetOwnerReferences(owners)
	got, err := p.in(namespace, plural(kind)).Create(t.Context(), u, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func plural(kind string) string {
	return map[string]string{
		"ConfigMap": "configmaps", "Secret": "secrets", "Namespace": "namespaces", "Gadget": "gadgets", "Realm": "realms",
	}[kind]
}

// owner is the reference to an object.
func owner(u *unstructured.Unstructured, blocks bool) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: u.GetAPIVersion(), Kind: u.GetKind(), Name: u.GetName(), UID: u.GetUID(), BlockOwnerDeletion: &blocks}
}

// remove deletes with a propagation policy.
func (p *plane) remove(t *testing.T, u *unstructured.Unstructured, policy metav1.DeletionPropagation) {
	t.Helper()
	err := p.in(u.GetNamespace(), plural(u.GetKind())).Delete(t.Context(), u.GetName(), metav1.DeleteOptions{PropagationPolicy: &policy})
	if err != nil {
		t.Fatal(err)
	}
}

// get returns an object, or nil when it does not exist.
func (p *plane) get(t *testing.T, u *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	got, err := p.in(u.GetNamespace(), plural(u.GetKind())).Get(t.Context(), u.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && got.GetUID() != u.GetUID() {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// until waits for a condition, and says what was waited for in vain.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	if !eventually(condition) {
		t.Fatalf("not after %v: %s", limit, what)
	}
}

// eventually waits for a condition and tells whether it came true.
func eventually(condition func() bool) bool {
	for end := time.Now().Add(limit); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

func (p *plane) untilGone(t *testing.T, objects ...*unstructured.Unstructured) {
	t.Helper()
	for _, u := range objects {
		until(t, fmt.Sprintf("%s %q is gone", u.GetKind(), u.GetName()), func() bool { return p.get(t, u) == nil })
	}
}

// stays gives the collector time to do what it must not do.
func (p *plane) stays(t *testing.T, objects ...*unstructured.Unstructured) {
	t.Helper()
	time.Sleep(300 * time.Millisecond)
	for _, u := range objects {
		if got := p.get(t, u); got == nil || got.GetDeletionTimestamp() != nil {
			t.Errorf("%s %q was deleted", u.GetKind(), u.GetName())
		}
	}
}

// patch changes metadata.
func (p *plane) patch(t *testing.T, u *unstructured.Unstructured, patch string) {
	t.Helper()
	_, err := p.in(u.GetNamespace(), plural(u.GetKind())).Patch(t.Context(), u.GetName(), "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}
