package stress

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/lifecycle"
)

// tenant is a plane of a test, and the widgets that it acknowledged.
type tenant struct {
	name string
	// sizes is the type of spec.size in the tenant's CRD, and size a value of it.
	sizes string
	size  any

	plane *controlplane.Plane
	mu    sync.Mutex
	acked []string
	many  chan struct{} // closed when there are manyAcked
}

const manyAcked = 20

func tenants() []*tenant {
	return []*tenant{
		{name: "blue", sizes: "integer", size: int64(7), many: make(chan struct{})},
		{name: "red", sizes: "string", size: "seven", many: make(chan struct{})},
	}
}

func (n *tenant) start(t *testing.T, s *controlplane.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	plane, err := s.Plane(ctx, n.name, core.Namespaces{}, core.ConfigMaps{}, crd.Definitions{}, aggregator.APIServices{},
		lifecycle.GarbageCollection{})
	if err != nil {
		t.Fatal(err)
	}
	n.plane = plane
}

// define creates the CRD, the same name in all tenants and another schema in each,
// and waits until it is established.
func (n *tenant) define(t *testing.T) {
	t.Helper()
	definitions, err := clientset.NewForConfig(n.plane.Config())
	if err != nil {
		t.Fatal(err)
	}
	def := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {
						Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"size": {Type: n.sizes}},
					}},
				}},
			}},
		},
	}
	crds := definitions.ApiextensionsV1().CustomResourceDefinitions()
	if def, err = crds.Create(t.Context(), def, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, crds, def, func(e watch.Event) (bool, error) {
		def := e.Object.(*apiextensionsv1.CustomResourceDefinition)
		return apihelpers.IsCRDConditionTrue(def, apiextensionsv1.Established), nil
	})
}

// until watches an object from its version on until a condition holds.
func until(t *testing.T, c watcher, o metav1.Object, condition watchtools.ConditionFunc) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	w, err := c.Watch(ctx, metav1.ListOptions{
		FieldSelector: "metadata.name=" + o.GetName(), ResourceVersion: o.GetResourceVersion(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watchtools.UntilWithoutRetry(ctx, w, condition); err != nil {
		t.Fatalf("watch %s: %v", o.GetName(), err)
	}
}

// watcher is a client of a resource.
type watcher interface {
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

func widgets(t *testing.T, config *rest.Config) dynamic.NamespaceableResourceInterface {
	t.Helper()
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"})
}

func widget(name string, size any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"size": size},
	}}
}

// write creates widgets until the plane refuses, or as many as there are to be.
func (n *tenant) write(ctx context.Context, c dynamic.ResourceInterface, who, count int) error {
	for i := range count {
		name := fmt.Sprintf("%s-%d-%d", n.name, who, i)
		if _, err := c.Create(ctx, widget(name, n.size), metav1.CreateOptions{}); err != nil {
			return err
		}
		n.mu.Lock()
		if n.acked = append(n.acked, name); len(n.acked) == manyAcked {
			close(n.many)
		}
		n.mu.Unlock()
	}
	return nil
}

// writers has goroutines write at the same time; wait returns their errors.
func (n *tenant) writers(t *testing.T, begin, count int) (wait func() error) {
	t.Helper()
	c := widgets(t, n.plane.Config()).Namespace("default")
	errs := make(chan error, 4)
	for who := range cap(errs) {
		go func() { errs <- n.write(t.Context(), c, begin+who, count) }()
	}
	return func() error {
		var all error
		for range cap(errs) {
			all = errors.Join(all, <-errs)
		}
		return all
	}
}

// holds compares the widgets that the tenant has with those it acknowledged, and
// that their sizes are of its type. A write that was refused because the plane
// stopped may be there.
func (n *tenant) holds(t *testing.T) {
	t.Helper()
	list, err := widgets(t, n.plane.Config()).Namespace("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatalf("%s: %v", n.name, err)
	}
	got := map[string]bool{}
	for _, w := range list.Items {
		got[w.GetName()] = true
		if size, _, err := unstructured.NestedFieldNoCopy(w.Object, "spec", "size"); err != nil || !cmp.Equal(size, n.size) {
			t.Errorf("%s has %s of size %v (%v)", n.name, w.GetName(), size, err)
		}
		if !strings.HasPrefix(w.GetName(), n.name) {
			t.Errorf("%s has %s", n.name, w.GetName())
		}
	}
	for _, name := range n.acked {
		if !got[name] {
			t.Errorf("%s lost %s", n.name, name)
		}
	}
	n.acked = slices.Collect(maps.Keys(got))
}

// TestPlanes adds planes to a running server: the same CRD with another schema in
// each, requests to all. One is stopped under load and started again while the
// other goes on. Nothing crosses, nothing is lost and nothing is left.
func TestPlanes(t *testing.T) {
	for name, s := range stores() {
		t.Run(name, func(t *testing.T) {
			serve(t, build(t, "warm", s.at(t.TempDir()))).mustStop()
			check := noLeak(t)
			dir := t.TempDir()
			l := serve(t, build(t, "host", s.at(dir)))
			all := tenants()
			blue, red := all[0], all[1]
			for _, n := range all {
				n.start(t, l.server)
				n.define(t)
				c := widgets(t, n.plane.Config()).Namespace("default")
				if err := n.write(t.Context(), c, 0, 1); err != nil {
					t.Fatal(err)
				}
			}
			refusals(t, l.server, all)

			goOn := blue.writers(t, 1, 100)
			stopRed := red.writers(t, 1, 1_000_000)
			select {
			case <-red.many:
			case <-time.After(limit):
				t.Fatalf("red has not acknowledged %d widgets after %v", manyAcked, limit)
			}
			begun := time.Now()
			if err := red.plane.Stop(t.Context()); err != nil {
				t.Errorf("stop red under load: %v", err)
			}
			took := time.Since(begun).Round(time.Millisecond)
			if err := stopRed(); err == nil {
				t.Error("a plane that was stopped answers")
			}
			t.Logf("the stop took %v, with %d widgets acknowledged", took, len(red.acked))
			if code := ask(red.plane.Handler()).Code; code != http.StatusServiceUnavailable {
				t.Errorf("a plane that was stopped answers %d", code)
			}
			red.start(t, l.server)
			red.holds(t)
			if err := errors.Join(red.writers(t, 10, 20)(), goOn()); err != nil {
				t.Error(err)
			}
			for _, n := range all {
				n.holds(t)
			}
			emptied(t, blue, red)
			nothing(t, l.server.ClientConfig())

			l.mustStop()
			if _, err := l.server.Plane(t.Context(), "late"); err == nil || !strings.Contains(err.Error(), "stopping") {
				t.Errorf("a plane on a server that stopped: %v", err)
			}
			check()
			if s.persistent {
				again := serve(t, build(t, "again", s.at(dir)))
				for _, n := range all {
					n.start(t, again.server)
					n.holds(t)
				}
				again.mustStop()
				check()
			}
		})
	}
}

// refusals are what a plane does not take, and a server no plane with.
func refusals(t *testing.T, s *controlplane.Server, all []*tenant) {
	t.Helper()
	for i, n := range all {
		other := all[(i+1)%len(all)].size
		_, err := widgets(t, n.plane.Config()).Namespace("default").Create(t.Context(), widget("wrong", other), metav1.CreateOptions{})
		if !apierrors.IsInvalid(err) {
			t.Errorf("%s takes a size of the other's schema: %v", n.name, err)
		}
	}
	for name, c := range map[string]struct {
		part controlplane.Part
		want string
	}{
		"blue":     {core.ConfigMaps{}, "a plane with that name is running"},
		"Not good": {core.ConfigMaps{}, "lowercase"},
		"admin":    {authn.Admin{}, controlplane.ErrServerOnly.Error()},
		"lonely":   {lifecycle.DefaultServiceAccounts{}, "core.Namespaces{}"},
	} {
		if _, err := s.Plane(t.Context(), name, c.part); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("plane %q: error %v, want %q", name, err, c.want)
		}
	}
}

// emptied deletes a namespace of one tenant that all have. Only its objects go.
func emptied(t *testing.T, one, other *tenant) {
	t.Helper()
	for _, n := range []*tenant{one, other} {
		c := client(t, n.plane.Config())
		ns := configMap("shop", "")
		if _, err := c.CoreV1().Namespaces().Create(t.Context(), namespace("shop"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.CoreV1().ConfigMaps("shop").Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	mine, others := client(t, one.plane.Config()).CoreV1().Namespaces(), client(t, other.plane.Config())
	shop, err := mine.Get(t.Context(), "shop", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := mine.Delete(t.Context(), "shop", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, mine, shop, func(e watch.Event) (bool, error) { return e.Type == watch.Deleted, nil })
	if _, err := others.CoreV1().ConfigMaps("shop").Get(t.Context(), "shop", metav1.GetOptions{}); err != nil {
		t.Errorf("%s: an object of the namespace that %s deleted: %v", other.name, one.name, err)
	}
}

// nothing sees that the root plane has nothing of the others.
func nothing(t *testing.T, root *rest.Config) {
	t.Helper()
	if _, err := widgets(t, root).Namespace("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the root plane serves widgets: %v", err)
	}
	if _, err := client(t, root).CoreV1().Namespaces().Get(t.Context(), "shop", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the root plane has a namespace of another: %v", err)
	}
}

func client(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}
