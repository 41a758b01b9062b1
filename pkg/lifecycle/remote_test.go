package lifecycle_test

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

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
	dead   atomic.Bool
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
		proxy.ServeHTTP(w, r)
	}))
	e.TLS = &tls.Config{NextProtos: []string{"http/1.1"}}
	e.StartTLS()
	t.Cleanup(e.Close)
	return e
}

// ResolveEndpoint implements aggregator.Resolver.
func (e *elsewhere) ResolveEndpoint(string, string, int32) (*url.URL, error) { return url.Parse(e.URL) }

// TestRemoteContent: a namespace is emptied on aggregated servers too. One that
// does not answer keeps its namespace Terminating, which says so, and all else is
// deleted meanwhile.
func TestRemoteContent(t *testing.T) {
	far := newElsewhere(t)
	p := start(t, memory.Store{}, aggregator.APIServices{Resolver: far})
	services := p.client.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"})
	service := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": "v1.far.example.com"},
		"spec": map[string]any{
			"group": "far.example.com", "version": "v1", "groupPriorityMinimum": int64(500), "versionPriority": int64(10),
			"service": map[string]any{"namespace": "far", "name": "api"}, "insecureSkipTLSVerify": true,
		},
	}}
	service, err := services.Create(t.Context(), service, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the remote group is available", func() bool {
		service, err := services.Get(t.Context(), service.GetName(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_ = unstructured.SetNestedSlice(service.Object, []any{map[string]any{
			"type": "Available", "status": "True", "reason": "Declared", "lastTransitionTime": "2026-01-01T00:00:00Z",
		}}, "status", "conditions")
		_, err = services.UpdateStatus(t.Context(), service, metav1.UpdateOptions{})
		return err == nil
	})
	gadgets := schema.GroupVersionResource{Group: "far.example.com", Version: "v1", Resource: "gadgets"}
	gadget := func(namespace string) {
		t.Helper()
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "far.example.com/v1", "kind": "Gadget"}}
		u.SetName("g")
		until(t, "a remote object is created", func() bool {
			_, err := p.client.Resource(gadgets).Namespace(namespace).Create(t.Context(), u, metav1.CreateOptions{})
			return err == nil || apierrors.IsAlreadyExists(err) // by a request whose answer was lost
		})
	}
	remaining := func(namespace string) int {
		t.Helper()
		list, err := far.client.Resource(gadgets).Namespace(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}

	one, two := p.create(t, "", "Namespace", "one"), p.create(t, "", "Namespace", "two")
	gadget("one")
	gadget("two")
	p.remove(t, one, background)
	p.untilGone(t, one)
	if n := remaining("one"); n != 0 {
		t.Errorf("%d objects are left elsewhere of a namespace that is gone", n)
	}

	far.dead.Store(true)
	local := p.create(t, "two", "ConfigMap", "local")
	p.remove(t, two, background)
	p.untilGone(t, local)
	until(t, "the condition says what did not answer", func() bool {
		return strings.Contains(conditions(t, p.get(t, two))["NamespaceDeletionContentFailure"]+
			conditions(t, p.get(t, two))["NamespaceDeletionDiscoveryFailure"], "far.example.com")
	})
	far.dead.Store(false)
	p.untilGone(t, two)
	if n := remaining("two"); n != 0 {
		t.Errorf("%d objects are left elsewhere of a namespace that is gone", n)
	}
}
