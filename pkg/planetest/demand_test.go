package planetest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/planetest"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

// atOnce runs a server that makes everything when it starts, until the test ends.
func atOnce(t *testing.T, parts ...controlplane.Part) *rest.Config {
	t.Helper()
	eager, err := controlplane.New("eager").Storage(memory.Store{}).With(parts...).Build()
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- eager.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-done)
	})
	select {
	case <-eager.Ready():
	case err := <-done:
		done <- nil
		t.Fatalf("Run: %v", err)
	}
	return eager.ClientConfig()
}

// TestOnDemand: what is made on demand tells the same of itself before it was used,
// after, and where everything was made.
func TestOnDemand(t *testing.T) {
	t.Parallel()
	parts := []controlplane.Part{namespaces(), kube.Apps(), kube.Batch()}
	made := atOnce(t, parts...)
	keys(t, made, "/openapi/v2") // needs the routes of everything
	for path, known := range map[string]string{
		"/openapi/v3":              "apis/apps/v1",
		"/openapi/v3/apis/apps/v1": "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/status",
		"/openapi/v2":              "/apis/batch/v1/namespaces/{namespace}/cronjobs/{name}",
		"/apis":                    "batch/v1",
		"/apis/apps/v1":            "statefulsets/scale",
		"/apis/batch":              "batch/v1",
		"/":                        "/apis/apps/v1",
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			plane := planetest.Options{NoDefaults: true}.Start(t, parts...)
			want, got := keys(t, made, path), keys(t, plane.Config(), path)
			if text := fmt.Sprint(want); !strings.Contains(text, known) {
				t.Errorf("%s has no %s: %s", path, known, text)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-made +on demand):\n%s", path, diff)
			}
			plane.Apply(t, planetest.YAML(`{apiVersion: batch/v1, kind: Job, metadata: {name: x}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}`))
			if diff := cmp.Diff(want, keys(t, plane.Config(), path)); diff != "" {
				t.Errorf("%s after a use (-made +on demand):\n%s", path, diff)
			}
		})
	}
}

// TestAPIServicesOnDemand: what APIServices tell is the same when they are written
// because somebody asks as when they are written at the start.
func TestAPIServicesOnDemand(t *testing.T) {
	t.Parallel()
	parts := []controlplane.Part{namespaces(), kube.Apps(), kube.Batch(), crd.Definitions{}, aggregator.APIServices{}}
	eager := atOnce(t, parts...)
	const services = "/apis/apiregistration.k8s.io/v1/apiservices"
	for _, path := range []string{"/apis", "/apis/", "/apis/apps", "/apis/apiextensions.k8s.io", "/apis/apps/v1", "/api", "/", services} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			plane, inside := inside(t, planetest.Options{NoDefaults: true}, parts...)
			must(t, inside.Feed().CatchUp(t.Context()))
			for o := range inside.Feed().All() {
				if o.Type.Resource.Resource == "apiservices" {
					t.Errorf("%s was written before anybody asked", o.Name)
				}
			}
			if diff := cmp.Diff(keys(t, eager, path), keys(t, plane.Config(), path)); diff != "" {
				t.Errorf("%s (-at once +on demand):\n%s", path, diff)
			}
		})
	}
}

// TestAPIServicesOfCRDs: those of CRDs that came before anybody asked are known, and
// those that come and go after follow.
func TestAPIServicesOfCRDs(t *testing.T) {
	t.Parallel()
	plane := planetest.Start(t, withWidgets())
	groups := func() []string {
		var names []string
		list := keys(t, plane.Config(), "/apis").(map[string]any)
		for _, g := range list["groups"].([]any) {
			names = append(names, g.(map[string]any)["name"].(string))
		}
		return names
	}
	if got := groups(); !slices.Contains(got, "example.com") || !slices.Contains(got, "apps") {
		t.Errorf("groups %v, want example.com and apps among them", got)
	}
	crds := plane.Dynamic().Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	})
	must(t, crds.Delete(t.Context(), "widgets.example.com", metav1.DeleteOptions{}))
	plane.Eventually(t, func(context.Context) error {
		if got := groups(); slices.Contains(got, "example.com") {
			return fmt.Errorf("groups %v, want no example.com", got)
		}
		return nil
	})
}

// keys are what there is in a document, or all of it where it has no paths.
func keys(t *testing.T, c *rest.Config, path string) any {
	t.Helper()
	c = rest.CopyConfig(c)
	c.NegotiatedSerializer = scheme.Codecs
	client, err := rest.UnversionedRESTClientFor(c)
	must(t, err)
	data, err := client.Get().AbsPath(path).SetHeader("Accept", "application/json").Do(t.Context()).Raw()
	must(t, err)
	var document map[string]any
	must(t, json.Unmarshal(data, &document))
	if paths, ok := document["paths"].(map[string]any); ok {
		return slices.Sorted(maps.Keys(paths))
	}
	if items, ok := document["items"].([]any); ok { // which have UIDs and times
		var names []string
		for _, i := range items {
			o := unstructured.Unstructured{Object: i.(map[string]any)}
			conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
			must(t, err)
			names = append(names, fmt.Sprintf("%s %d", o.GetName(), len(conditions)))
		}
		return names
	}
	return document
}

// TestUnusedResources: an informer of the plane knows the objects of a resource that
// nobody used before, and what becomes of them.
func TestUnusedResources(t *testing.T) {
	t.Parallel()
	plane, inside := inside(t, planetest.Options{})
	ranges := inside.Informers().Core().V1().LimitRanges().Lister().LimitRanges("default")
	known := func(label string) func(context.Context) error {
		return func(context.Context) error {
			found, err := ranges.Get("x")
			switch {
			case label == "" && apierrors.IsNotFound(err):
				return nil
			case err != nil:
				return err
			case found.Labels["is"] != label:
				return fmt.Errorf("it is %q, want %q", found.Labels["is"], label)
			}
			return nil
		}
	}
	must(t, known("")(t.Context()))
	apply := func(label string) {
		plane.Apply(t, planetest.YAML(fmt.Sprintf(
			`{apiVersion: v1, kind: LimitRange, metadata: {name: x, namespace: default, labels: {is: %s}}, spec: {limits: []}}`, label)))
	}
	apply("new")
	plane.Eventually(t, known("new"))
	apply("changed")
	plane.Eventually(t, known("changed"))
	must(t, plane.Client().CoreV1().LimitRanges("default").Delete(t.Context(), "x", metav1.DeleteOptions{}))
	plane.Eventually(t, known(""))
}

// TestUnusedSinceStart: an informer knows the objects that the storage had when the
// plane started, which nobody used since.
func TestUnusedSinceStart(t *testing.T) {
	t.Parallel()
	storage := planetest.Options{Storage: sqlite.File{Path: filepath.Join(t.TempDir(), "state.db")}}
	t.Run("before", func(t *testing.T) {
		storage.Start(t).Apply(t, planetest.YAML(
			`{apiVersion: v1, kind: LimitRange, metadata: {name: x, namespace: default}, spec: {limits: []}}`))
	})
	plane, inside := inside(t, storage)
	plane.Eventually(t, func(context.Context) error {
		_, err := inside.Informers().Core().V1().LimitRanges().Lister().LimitRanges("default").Get("x")
		return err
	})
}

// TestWatchOverRestart: a watch goes on at a server that was started since, with what it missed.
func TestWatchOverRestart(t *testing.T) {
	t.Parallel()
	storage := planetest.Options{Storage: sqlite.File{Path: filepath.Join(t.TempDir(), "state.db")}}
	limits := func(plane *planetest.Plane) typedcorev1.LimitRangeInterface {
		return plane.Client().CoreV1().LimitRanges("default")
	}
	create := func(t *testing.T, plane *planetest.Plane, name string) (version string) {
		t.Helper()
		made, err := limits(plane).Create(t.Context(), &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		must(t, err)
		return made.ResourceVersion
	}
	seen := ""
	t.Run("before", func(t *testing.T) {
		plane := storage.Start(t)
		seen = create(t, plane, "seen")
		create(t, plane, "missed")
	})
	plane := storage.Start(t)
	create(t, plane, "new")
	_, err := limits(plane).List(t.Context(), metav1.ListOptions{}) // what it has is all that the watch cache knows
	must(t, err)
	w, err := limits(plane).Watch(t.Context(), metav1.ListOptions{ResourceVersion: seen})
	must(t, err)
	defer w.Stop()
	for _, name := range []string{"missed", "new", "newest"} {
		e := <-w.ResultChan()
		if got, ok := e.Object.(*corev1.LimitRange); !ok || e.Type != watch.Added || got.Name != name {
			t.Fatalf("the watch has %v, want that %s was added", e, name)
		}
		if name == "new" {
			create(t, plane, "newest")
		}
	}
}

// inside starts a plane and returns what parts see of it too.
func inside(t *testing.T, o planetest.Options, parts ...controlplane.Part) (*planetest.Plane, *controlplane.Plane) {
	t.Helper()
	var inside *controlplane.Plane
	plane := o.Start(t, append(parts, controlplane.PartFunc(func(p *controlplane.Plan) error {
		p.Work(controlplane.Work{Name: "look", Start: func(_ context.Context, p *controlplane.Plane) error {
			inside = p
			return nil
		}})
		return nil
	}))...)
	return plane, inside
}
