package crd_test

import (
	"context"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

func serve(t *testing.T, parts ...controlplane.Part) *dynamic.DynamicClient {
	t.Helper()
	c, _ := serveRecorded(t, parts...)
	return c
}

// serveRecorded also counts the answers of each status.
func serveRecorded(t *testing.T, parts ...controlplane.Part) (*dynamic.DynamicClient, *answers) {
	t.Helper()
	return serveAs(t, "", parts...)
}

// serveAs returns the client of an administrator, empty for that of the program.
func serveAs(t *testing.T, user string, parts ...controlplane.Part) (*dynamic.DynamicClient, *answers) {
	t.Helper()
	s, err := controlplane.New(t.Name()).Storage(memory.Store{}).With(parts...).Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	select {
	case <-s.Ready():
	case err := <-done:
		done <- nil
		t.Fatalf("Run: %v", err)
	}
	config, seen := s.ClientConfig(), &answers{counts: map[int]int{}}
	if user != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return seen.of(next) })
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c, seen
}

// answers counts responses by status, those that a client retries unseen too.
type answers struct {
	mu     sync.Mutex
	counts map[int]int
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (a *answers) of(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		if err == nil {
			a.mu.Lock()
			a.counts[resp.StatusCode]++
			a.mu.Unlock()
		}
		return resp, err
	})
}

func widgetCRD(t *testing.T) (raw []byte, crd *unstructured.Unstructured) {
	t.Helper()
	raw, err := os.ReadFile("../../config/samples/widgets-crd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	crd = &unstructured.Unstructured{}
	if err := yaml.Unmarshal(raw, &crd.Object); err != nil {
		t.Fatal(err)
	}
	return raw, crd
}

func widget(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"size": int64(1)},
	}}
}

var (
	crds    = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
)

// TestGivenDefinitionsServeWhenReady: what the file system holds can be used as
// soon as the server is ready, with defaults and validation.
func TestGivenDefinitionsServeWhenReady(t *testing.T) {
	t.Parallel()
	raw, _ := widgetCRD(t)
	c := serve(t, core.Namespaces{}, aggregator.APIServices{}, crd.Definitions{FS: fstest.MapFS{"a/widgets.yaml": {Data: raw}}})
	created, err := c.Resource(widgets).Namespace("default").Create(t.Context(), widget("a"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if colour, _, _ := unstructured.NestedString(created.Object, "spec", "colour"); colour != "green" {
		t.Errorf("the default of spec.colour is %q, want green", colour)
	}
	bad := widget("b")
	_ = unstructured.SetNestedField(bad.Object, "red", "spec", "colour")
	_ = unstructured.SetNestedField(bad.Object, int64(200), "spec", "size")
	if _, err = c.Resource(widgets).Namespace("default").Create(t.Context(), bad, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a red widget of 200 mm: %v, want a refusal by its CEL rule", err)
	}
}

// TestFirstObjectAtOnce: from the moment a CRD is established nothing refuses
// or delays its first object, and no request is told to retry.
func TestFirstObjectAtOnce(t *testing.T) {
	t.Parallel()
	// Both waits that were taken out last longer than this, each time. A busy
	// machine holds up some servers only.
	const most, servers = time.Second, 10
	var took []time.Duration
	for range servers {
		took = append(took, firstObject(t))
		if slices.Min(took) < most {
			return
		}
	}
	t.Errorf("the first object took %v: somebody waits", took)
}

// firstObject is how long a new server takes from a CRD to its first object.
func firstObject(t *testing.T) time.Duration {
	t.Helper()
	_, def := widgetCRD(t)
	c, seen := serveRecorded(t, core.Namespaces{}, crd.Definitions{})
	w, err := c.Resource(crds).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	begun := time.Now()
	if _, err := c.Resource(crds).Create(t.Context(), def, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for e := range w.ResultChan() {
		if established(e.Object.(*unstructured.Unstructured)) {
			break
		}
	}
	t.Logf("established after %v", time.Since(begun))
	if _, err := c.Resource(widgets).Namespace("default").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("first list: %v", err)
	}
	t.Logf("first list after %v", time.Since(begun))
	if _, err := c.Resource(widgets).Namespace("default").Create(t.Context(), widget("a"), metav1.CreateOptions{}); err != nil {
		t.Errorf("first create: %v", err)
	}
	took := time.Since(begun)
	t.Logf("first object after %v", took)
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if seen.counts[http.StatusTooManyRequests] > 0 {
		t.Errorf("requests were told to retry: %v", seen.counts)
	}
	return took
}

func established(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == "Established" && m["status"] == "True" {
			return true
		}
	}
	return false
}
