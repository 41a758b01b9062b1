package lifecycle_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// elsewhere is an API server of another process: CRDs of a group of its own,
// reached over TLS, and not always.
type elsewhere struct {
	*httptest.Server
	dead   atomic.Bool // it does not answer
	broken atomic.Bool // it answers that it cannot, but what it has
	silent atomic.Bool // its watches say nothing
	client dynamic.Interface
}

func newElsewhere(t *testing.T) *elsewhere {
	t.Helper()
	crds := strings.ReplaceAll(crds, "example.com", "far.example.com")
	s, err := controlplane.New("far").Storage(memory.Store{}).
		With(crd.Definitions{FS: fstest.MapFS{"crds.yaml": {Data: []byte(crds)}}}).Build()
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
	<-s.Ready()
	transport, err := rest.TransportFor(s.ClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	e := &elsewhere{}
	if e.client, err = dynamic.NewForConfig(s.ClientConfig()); err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = "http", "far"
		r.Out.Header.Del("X-Remote-User")
	}}
	e.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if e.dead.Load() {
			panic(http.ErrAbortHandler)
		}
		if e.broken.Load() && strings.Contains(r.URL.Path, "/namespaces/") {
			http.Error(w, "out of order", http.StatusInternalServerError)
			return
		}
		if e.silent.Load() && r.URL.Query().Has("watch") {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	e.TLS = &tls.Config{NextProtos: []string{"http/1.1"}}
	e.StartTLS()
	t.Cleanup(e.Close)
	return e
}

// ResolveEndpoint implements controlplane.ServiceResolver.
func (e *elsewhere) ResolveEndpoint(string, string, int32) (*url.URL, error) { return url.Parse(e.URL) }

// aggregated are APIServices whose servers r finds.
func aggregated(r controlplane.ServiceResolver) controlplane.Part {
	return controlplane.Parts{
		aggregator.APIServices{},
		controlplane.PartFunc(func(p *controlplane.Plan) error {
			if r != nil {
				p.ResolveServices("test", r)
			}
			return nil
		}),
	}
}

// remaining is how many gadgets it has in a namespace.
func (e *elsewhere) remaining(t *testing.T, namespace string) int {
	t.Helper()
	list, err := e.client.Resource(farGadgets()).Namespace(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return len(list.Items)
}

// farGroup is the group of elsewhere.
const farGroup = "far.example.com"

func farGadgets() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: farGroup, Version: "v1", Resource: "gadgets"}
}

func (p *plane) services() dynamic.ResourceInterface {
	return p.client.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"})
}

// announce makes the APIService of a group of a server elsewhere.
func (p *plane) announce(t *testing.T, group string) {
	t.Helper()
	service := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": "v1." + group},
		"spec": map[string]any{
			"group": group, "version": "v1", "groupPriorityMinimum": int64(500), "versionPriority": int64(10),
			"service": map[string]any{"namespace": "elsewhere", "name": group}, "insecureSkipTLSVerify": true,
		},
	}}
	if _, err := p.services().Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// available says whether that server can be reached, as a check does that knows of
// no other condition.
func (p *plane) available(t *testing.T, group, status string) {
	t.Helper()
	until(t, group+" is Available: "+status, func() bool {
		service, err := p.services().Get(t.Context(), "v1."+group, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_ = unstructured.SetNestedSlice(service.Object, []any{map[string]any{
			"type": "Available", "status": status, "reason": "Declared", "lastTransitionTime": "2026-01-01T00:00:00Z",
		}}, "status", "conditions")
		_, err = p.services().UpdateStatus(t.Context(), service, metav1.UpdateOptions{})
		return err == nil
	})
}

// createFar makes a gadget on that server.
func (p *plane) createFar(t *testing.T, namespace string) {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "far.example.com/v1", "kind": "Gadget"}}
	u.SetName("g")
	until(t, "a remote object is created", func() bool {
		_, err := p.client.Resource(farGadgets()).Namespace(namespace).Create(t.Context(), u, metav1.CreateOptions{})
		return err == nil || apierrors.IsAlreadyExists(err) // by a request whose answer was lost
	})
}

// failure is what a namespace's conditions say of what failed.
func failure(t *testing.T, ns *unstructured.Unstructured) string {
	t.Helper()
	var all string
	for _, kind := range []corev1.NamespaceConditionType{"NamespaceDeletionDiscoveryFailure", "NamespaceDeletionContentFailure"} {
		if c := conditions(t, ns)[kind]; strings.HasPrefix(c, "True") {
			all += c
		}
	}
	return all
}

// TestRemoteContent: a namespace is emptied on aggregated servers too. One that
// does not answer keeps its namespace Terminating, which says so, and all else is
// deleted meanwhile.
func TestRemoteContent(t *testing.T) {
	far := newElsewhere(t)
	p := start(t, memory.Store{}, aggregated(far))
	p.announce(t, farGroup)
	p.available(t, farGroup, "True")

	one, two := p.create(t, "", "Namespace", "one"), p.create(t, "", "Namespace", "two")
	p.createFar(t, "one")
	p.createFar(t, "two")
	p.remove(t, one, background)
	p.untilGone(t, one)
	if n := far.remaining(t, "one"); n != 0 {
		t.Errorf("%d objects are left elsewhere of a namespace that is gone", n)
	}

	far.dead.Store(true)
	local := p.create(t, "two", "ConfigMap", "local")
	p.remove(t, two, background)
	p.untilGone(t, local)
	until(t, "the condition says what did not answer", func() bool {
		return strings.Contains(failure(t, p.get(t, two)), farGroup)
	})
	far.dead.Store(false)
	p.untilGone(t, two)
	if n := far.remaining(t, "two"); n != 0 {
		t.Errorf("%d objects are left elsewhere of a namespace that is gone", n)
	}
}

// put makes a gadget there, as those of the server do.
func (e *elsewhere) put(t *testing.T, namespace string) {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "far.example.com/v1", "kind": "Gadget"}}
	u.SetName("g")
	if _, err := e.client.Resource(farGadgets()).Namespace(namespace).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestLeftBehind: what a dead server holds of a namespace that went without it goes when it is
// back, and nothing that is of another namespace of the name.
func TestLeftBehind(t *testing.T) {
	t.Parallel()
	far := newElsewhere(t)
	p := startWith(t, memory.Store{}, time.Second, aggregated(far))
	p.announce(t, farGroup)
	gone, again := p.create(t, "", "Namespace", "gone"), p.create(t, "", "Namespace", "again")
	p.createFar(t, "gone")
	p.createFar(t, "again")
	for _, ns := range []string{"gone", "again"} {
		until(t, "what is there is counted", func() bool {
			counts, known := p.plane.AggregatedCounter().Counts(ns, farGadgets().GroupVersion())
			return known && counts["gadgets"] == 1
		})
	}
	far.dead.Store(true)
	for _, ns := range []*unstructured.Unstructured{gone, again} {
		p.remove(t, ns, background)
		p.untilGone(t, ns)
	}
	service, err := p.services().Get(t.Context(), "v1."+farGroup, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := service.GetAnnotations()["sailplane.dev/left-behind"]; !strings.Contains(got, `"gone":"2`) || !strings.Contains(got, `"again":"2`) {
		t.Errorf("what stays behind is noted as %s", got)
	}
	p.create(t, "", "Namespace", "again")
	far.put(t, "elsewhere")
	// As if it had been made in the new namespace when the server was back: the clock is that
	// of the same machine.
	fresh := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "far.example.com/v1", "kind": "Gadget"}}
	fresh.SetName("fresh")
	noted := time.Now()
	until(t, "an object is younger than the note", func() bool { // creation times have seconds
		gadgets := far.client.Resource(farGadgets()).Namespace("again")
		made, err := gadgets.Create(t.Context(), fresh, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if at := made.GetCreationTimestamp(); at.After(noted) {
			return true
		}
		if err := gadgets.Delete(t.Context(), fresh.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		return false
	})
	far.dead.Store(false)
	until(t, "what was left behind is gone", func() bool {
		return far.remaining(t, "gone") == 0 && far.remaining(t, "again") == 1
	})
	until(t, "nothing is noted any more", func() bool {
		service, err := p.services().Get(t.Context(), "v1."+farGroup, metav1.GetOptions{})
		return err == nil && service.GetAnnotations()["sailplane.dev/left-behind"] == ""
	})
	if n := far.remaining(t, "elsewhere"); n != 1 {
		t.Errorf("%d objects are left of a namespace that nobody deleted, want 1", n)
	}
	if _, err := far.client.Resource(farGadgets()).Namespace("again").Get(t.Context(), "fresh", metav1.GetOptions{}); err != nil {
		t.Errorf("an object of the new namespace: %v", err)
	}
}

// TestAcknowledged: what was acknowledged before its server died is not forgotten, also when it
// was not counted yet.
func TestAcknowledged(t *testing.T) {
	t.Parallel()
	far := newElsewhere(t)
	far.silent.Store(true)
	p := start(t, memory.Store{}, aggregated(far))
	p.announce(t, farGroup)
	counted := func(namespace string) (n int, known bool) {
		counts, known := p.plane.AggregatedCounter().Counts(namespace, farGadgets().GroupVersion())
		return counts["gadgets"], known
	}
	ns := p.create(t, "", "Namespace", "shop")
	until(t, "nothing is there", func() bool {
		n, known := counted("shop")
		return known && n == 0
	})
	gadgets := p.client.Resource(farGadgets()).Namespace("shop")
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "far.example.com/v1", "kind": "Gadget"}}
	u.SetName("g")
	steps := []struct {
		reason string
		do     func() error
		want   int
	}{
		{"a dry run makes nothing", func() error {
			_, err := gadgets.Create(t.Context(), u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}, 0},
		{"what is refused is not there", func() error {
			bad := u.DeepCopy()
			bad.SetName("No Name")
			if _, err := gadgets.Create(t.Context(), bad, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
				return fmt.Errorf("a bad name: %w", err)
			}
			return nil
		}, 0},
		{"a create", func() (err error) {
			u, err = gadgets.Create(t.Context(), u, metav1.CreateOptions{})
			return err
		}, 1},
		{"an update makes nothing", func() (err error) {
			u.SetLabels(map[string]string{"a": "b"})
			u, err = gadgets.Update(t.Context(), u, metav1.UpdateOptions{})
			return err
		}, 1},
		{"an apply can be a create", func() error {
			other := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "far.example.com/v1", "kind": "Gadget"}}
			other.SetName("h")
			_, err := gadgets.Apply(t.Context(), "h", other, metav1.ApplyOptions{FieldManager: "test"})
			return err
		}, 2},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			t.Fatalf("%s: %v", s.reason, err)
		}
		until(t, s.reason, func() bool { // once the handler of the request has returned
			n, known := counted("shop")
			return known && n == s.want
		})
	}
	far.dead.Store(true)
	p.remove(t, ns, background)
	until(t, "the condition says what does not answer", func() bool { return strings.Contains(failure(t, p.get(t, ns)), farGroup) })
	far.dead.Store(false)
	p.untilGone(t, ns)
	if n := far.remaining(t, "shop"); n != 0 {
		t.Errorf("%d objects are left of a namespace that is gone", n)
	}
	far.CloseClientConnections()
	until(t, "a new list knows better", func() bool {
		n, known := counted("shop")
		return known && n == 0
	})
}

// TestNothingThere: a dead server that held nothing of a namespace does not hold it up.
func TestNothingThere(t *testing.T) {
	t.Parallel()
	far := newElsewhere(t)
	p := start(t, memory.Store{}, aggregated(far))
	p.announce(t, farGroup)
	ns, full := p.create(t, "", "Namespace", "shop"), p.create(t, "", "Namespace", "full")
	p.createFar(t, "full")
	until(t, "what is there is counted", func() bool {
		counts, known := p.plane.AggregatedCounter().Counts("full", farGadgets().GroupVersion())
		return known && counts["gadgets"] == 1
	})
	far.dead.Store(true)
	p.remove(t, full, background)
	until(t, "the condition says what does not answer", func() bool { return strings.Contains(failure(t, p.get(t, full)), farGroup) })
	p.remove(t, ns, background)
	p.untilGone(t, ns)
}
