package aggregator_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/sailplane-dev/sailplane/pkg/admit"
	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// orchard is a server of apples, in this process.
func orchard(t *testing.T, parts ...controlplane.Part) *controlplane.Server {
	t.Helper()
	apples := apis.NewGroup(fruit.GroupVersion(), nil, nil, apis.Resource[fruit.Apple, fruit.AppleList]("apples"))
	s, err := controlplane.New("orchard").Storage(memory.Store{}).With(apples).With(parts...).Build()
	if err != nil {
		t.Fatal(err)
	}
	started(t, s)
	return s
}

// started runs a server until the test ends.
func started(t testing.TB, s *controlplane.Server) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	<-s.Ready()
}

func appleClient(t *testing.T, config *rest.Config) dynamic.ResourceInterface {
	t.Helper()
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c.Resource(fruit.GroupVersion().WithResource("apples")).Namespace("default")
}

func apple(name string) *unstructured.Unstructured {
	a := &unstructured.Unstructured{}
	a.SetGroupVersionKind(fruit.GroupVersion().WithKind("Apple"))
	a.SetName(name)
	return a
}

// nameOfApples is the APIService of apples.
func nameOfApples() string { return fruit.GroupVersion().Version + "." + fruit.GroupVersion().Group }

// TestInProcess: a handler in the process is a server as any other, without a socket and
// without an APIService that somebody writes.
func TestInProcess(t *testing.T) {
	t.Parallel()
	var caller atomic.Value
	inner := orchard(t, admit.ValidateObject("who", func(_ context.Context, _, _ *fruit.Apple, a admit.Attributes) error {
		caller.Store(a.GetUserInfo().GetName())
		return nil
	}))
	config, _ := run(t, memory.Store{}, aggregator.APIServices{Servers: []aggregator.Server{{Name: "shop/fruit", Handler: inner.Handler()}}})
	eventually(t, "the APIService", func() error {
		if got := all(t, config)[nameOfApples()]; got != "True Passed" {
			return fmt.Errorf("Available is %q", got)
		}
		return nil
	})
	apples := appleClient(t, config)
	w, err := apples.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	asGardener := rest.CopyConfig(config)
	asGardener.Impersonate = rest.ImpersonationConfig{UserName: "gardener", Groups: []string{"system:masters"}}
	if _, err := appleClient(t, asGardener).Create(t.Context(), apple("a"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := caller.Load(); got != "gardener" {
		t.Errorf("the other server was asked by %v", got)
	}
	if e := <-w.ResultChan(); e.Object.(*unstructured.Unstructured).GetName() != "a" {
		t.Errorf("the watch has %v", e)
	}
	stored, err := appleClient(t, inner.ClientConfig()).Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil || stored.GetName() != "a" {
		t.Errorf("in the other server: %v, %v", stored, err)
	}
	asStranger := rest.CopyConfig(config)
	asStranger.Impersonate = rest.ImpersonationConfig{UserName: "stranger"}
	if _, err := appleClient(t, asStranger).Get(t.Context(), "a", metav1.GetOptions{}); err == nil {
		t.Error("a stranger may read")
	}

	path := "/openapi/v3/apis/" + fruit.GroupVersion().String()
	document, _ := get(t, config, path, "application/json")
	if want, _ := get(t, inner.ClientConfig(), path, "application/json"); document != want {
		t.Errorf("%s differs from the other server's: %.200s", path, document)
	}
	index, _ := get(t, config, "/openapi/v3", "application/json")
	swagger, _ := get(t, config, "/openapi/v2", "application/json")
	if !strings.Contains(index, `"apis/`+fruit.GroupVersion().String()+`"`) || !strings.Contains(swagger, `/apples/{name}`) {
		t.Errorf("the index %s or the v2 document does not have apples", index)
	}
	if group, status := get(t, config, "/apis/"+fruit.GroupVersion().Group, "application/json"); status != http.StatusOK {
		t.Errorf("the group: %d %s", status, group)
	}
}

// TestPanics: a handler that panics harms no other request, of clients or of the front itself.
func TestPanics(t *testing.T) {
	t.Parallel()
	var ill atomic.Bool
	inner := orchard(t, controlplane.PartFunc(func(p *controlplane.Plan) error {
		p.Wrap(controlplane.Innermost, "rotten", func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/rotten") || ill.Load() && r.URL.Path == "/readyz" {
					panic("rotten")
				}
				next.ServeHTTP(w, r)
			})
		})
		return nil
	}))
	config, _ := run(t, memory.Store{}, aggregator.APIServices{Servers: []aggregator.Server{{Name: "shop/fruit", Handler: inner.Handler()}}})
	apples := appleClient(t, config)
	eventually(t, "the server answers", func() error {
		_, err := apples.List(t.Context(), metav1.ListOptions{})
		return err
	})
	if _, err := apples.Get(t.Context(), "rotten", metav1.GetOptions{}); err == nil {
		t.Error("a handler that panics answers")
	}
	if _, err := apples.List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("after the panic: %v", err)
	}
	ill.Store(true)
	eventually(t, "the server is ill", func() error {
		if got := all(t, config)[nameOfApples()]; got != "False FailedDiscoveryCheck" {
			return fmt.Errorf("Available is %q", got)
		}
		return nil
	})
	if _, status := get(t, config, "/readyz", "*/*"); status != http.StatusOK {
		t.Errorf("the front is not ready: %d", status)
	}
}

// TestMadeAPIServices: APIServices that were made for a server come back, and go with what
// they are for.
func TestMadeAPIServices(t *testing.T) {
	t.Parallel()
	var gone atomic.Bool
	inner := orchard(t).Handler()
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if gone.Load() && strings.HasPrefix(r.URL.Path, "/apis/") {
			http.NotFound(w, r)
			return
		}
		if gone.Load() && r.URL.Path == "/apis" {
			w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
			_, _ = w.Write([]byte(`{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[]}`))
			return
		}
		inner.ServeHTTP(w, r)
	})
	config, _ := run(t, memory.Store{}, aggregator.APIServices{Servers: []aggregator.Server{{Name: "shop/fruit", Handler: h}}})
	is := func(want bool) func() error {
		return func() error {
			if _, ok := all(t, config)[nameOfApples()]; ok != want {
				return fmt.Errorf("it exists: %t, want %t", ok, want)
			}
			return nil
		}
	}
	eventually(t, "at first", is(true))
	made, err := services(t, config).ApiregistrationV1().APIServices().Get(t.Context(), nameOfApples(), metav1.GetOptions{})
	if err != nil || made.Labels[aggregator.ServerLabel] != "shop.fruit" || made.Spec.Service.Name != "fruit" {
		t.Errorf("%v, %v", made, err)
	}
	if err := services(t, config).ApiregistrationV1().APIServices().Delete(t.Context(), nameOfApples(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "after somebody deleted it", is(true))
	gone.Store(true)
	eventually(t, "when the server has none", is(false))
}

// far is a server at a URL.
func far(t *testing.T, h http.Handler) (s *httptest.Server, ca []byte) {
	t.Helper()
	s = httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// TestURL: one line says where a server is, and the certificate must be for it.
func TestURL(t *testing.T) {
	t.Parallel()
	var paths atomic.Value
	s, ca := far(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/things") {
			paths.Store(fmt.Sprintf("%s %s for %s, after %s", r.Proto, r.URL.RequestURI(), r.Header.Get("X-Remote-User"), r.Header.Get("Audit-Id")))
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind": "Answer"}`)
	}))
	cases := map[string]struct {
		reason  string
		url, ca string
		deny    bool
		want    string
	}{
		"right":     {reason: "it is for the URL's host", url: s.URL, ca: string(ca), want: "True Passed"},
		"path":      {reason: "an API may be below a path", url: s.URL + "/base/", ca: string(ca), want: "True Passed"},
		"name":      {reason: "the certificate is for the address", url: strings.Replace(s.URL, "127.0.0.1", "localhost", 1), ca: string(ca), want: "False FailedDiscoveryCheck"},
		"authority": {reason: "the machine trusts no such authority", url: s.URL, want: "False FailedDiscoveryCheck"},
		"plain":     {reason: "what says who asks must not be read by others", url: strings.Replace(s.URL, "https", "http", 1), ca: string(ca), want: "False FailedDiscoveryCheck"},
		"denied":    {reason: "users of the API do not get at the operator's networks", url: s.URL, ca: string(ca), deny: true, want: "False FailedDiscoveryCheck"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			part := aggregator.APIServices{}
			if c.deny {
				part.Deny = admit.PrivateNetworks()
			}
			config, _ := run(t, memory.Store{}, part)
			service := remoteService([]byte(c.ca))
			service.Annotations = map[string]string{aggregator.URLAnnotation: c.url}
			if _, err := services(t, config).ApiregistrationV1().APIServices().Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			becomes(t, config, c.want)
			body, status := get(t, config, "/apis/far.example.com/v1/things", "application/json")
			if c.want != "True Passed" {
				if status != http.StatusServiceUnavailable {
					t.Errorf("%s: %d %s", c.reason, status, body)
				}
				return
			}
			got, _ := paths.Load().(string)
			want := "HTTP/2.0 " + map[string]string{"path": "/base"}[name] + "/apis/far.example.com/v1/things for system:apiserver, after "
			if status != http.StatusOK || !strings.HasPrefix(got, want) || got == want {
				t.Errorf("%s: %d, and the server got %q, want %q and an Audit-ID", c.reason, status, got, want)
			}
		})
	}
}

// TestServerURL: a server that the operator names is reached in denied networks, and its
// authorities come from a file.
func TestServerURL(t *testing.T) {
	t.Parallel()
	s, ca := far(t, handedTo(t, orchard(t)))
	file := t.TempDir() + "/ca.crt"
	write(t, file, string(ca))
	config, _ := run(t, memory.Store{}, aggregator.APIServices{
		Servers: []aggregator.Server{{Name: "shop/fruit", URL: s.URL, CAFile: file}}, Deny: admit.PrivateNetworks(),
	})
	eventually(t, "a list", func() error {
		_, err := appleClient(t, config).List(t.Context(), metav1.ListOptions{})
		return err
	})
}

// handedTo hands all requests to a server, as its administrator's.
func handedTo(t *testing.T, inner *controlplane.Server) http.Handler {
	t.Helper()
	transport, err := rest.TransportFor(inner.ClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := r.Clone(r.Context())
		out.URL.Scheme, out.URL.Host, out.RequestURI = "http", "inner", ""
		response, err := transport.RoundTrip(out)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer response.Body.Close()
		copyAnswer(w, response)
	})
}

// TestLoop: two servers that hand a request to each other say so.
func TestLoop(t *testing.T) {
	t.Parallel()
	var first atomic.Value
	toFirst := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { first.Load().(http.Handler).ServeHTTP(w, r) })
	second, err := controlplane.New("second").Storage(memory.Store{}).
		With(aggregator.APIServices{Servers: []aggregator.Server{{Name: "elsewhere/api", Handler: toFirst}}}).Build()
	if err != nil {
		t.Fatal(err)
	}
	firstServer, err := controlplane.New("first").Storage(memory.Store{}).
		With(aggregator.APIServices{Servers: []aggregator.Server{{Name: "elsewhere/api", Handler: second.Handler()}}}).Build()
	if err != nil {
		t.Fatal(err)
	}
	first.Store(firstServer.Handler())
	for _, s := range []*controlplane.Server{firstServer, second} {
		started(t, s)
		if _, err := services(t, s.ClientConfig()).ApiregistrationV1().APIServices().Create(t.Context(), remoteService(nil), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "condition Available", func() error {
		s, err := services(t, firstServer.ClientConfig()).ApiregistrationV1().APIServices().Get(t.Context(), "v1.far.example.com", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(s.Status.Conditions, func(c apiregistrationv1.APIServiceCondition) bool {
			return c.Type == apiregistrationv1.Available && strings.Contains(c.Message, "hands requests for far.example.com/v1 back")
		}) {
			return fmt.Errorf("%+v", s.Status)
		}
		return nil
	})
}

// TestServerErrors: Build says what is wrong with servers.
func TestServerErrors(t *testing.T) {
	t.Parallel()
	h := http.NotFoundHandler()
	cases := map[string]struct {
		reason  string
		servers []aggregator.Server
		want    string
	}{
		"name":    {"it is a Service", []aggregator.Server{{Name: "fruit", Handler: h}}, `field Servers[0]: field Name: "fruit": want NAMESPACE/NAME`},
		"nothing": {"it is somewhere", []aggregator.Server{{Name: "a/b"}}, "field Servers[0]: fields URL and Handler: set one of them"},
		"both":    {"it is in one place", []aggregator.Server{{Name: "a/b", Handler: h, URL: "https://a"}}, "set one of them"},
		"http":    {"who asks must not be read by others", []aggregator.Server{{Name: "a/b", URL: "http://a"}}, `field URL: "http://a": want https://HOST[:PORT][/PATH]`},
		"twice":   {"a name is of one server", []aggregator.Server{{Name: "a/b", Handler: h}, {Name: "a/b", Handler: h}}, `field Servers[1]: field Name: "a/b": another server has the name`},
		"file":    {"it is read when the server is built", []aggregator.Server{{Name: "a/b", URL: "https://a", CAFile: "/does/not/exist"}}, "field Servers: CAFile: open /does/not/exist"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := controlplane.New("x").Storage(memory.Store{}).With(aggregator.APIServices{Servers: c.servers}).Build()
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", c.reason, err, c.want)
			}
		})
	}
}

// TestServerNoMore: APIServices that were made for a server go when nobody names it any more,
// and those that somebody wrote stay.
func TestServerNoMore(t *testing.T) {
	t.Parallel()
	storage := memory.Store{}.Open()
	if err := storage.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := storage.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	config, stop := run(t, kept{storage}, aggregator.APIServices{Servers: []aggregator.Server{{Name: "shop/fruit", Handler: orchard(t).Handler()}}})
	if _, err := services(t, config).ApiregistrationV1().APIServices().Create(t.Context(), remoteService(nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "an APIService is made", func() error {
		if _, ok := all(t, config)[nameOfApples()]; !ok {
			return errors.New("there is none")
		}
		return nil
	})
	stop()
	config, _ = run(t, kept{storage}, aggregator.APIServices{})
	eventually(t, "it goes", func() error {
		if _, ok := all(t, config)[nameOfApples()]; ok {
			return errors.New("it is there")
		}
		return nil
	})
	if _, ok := all(t, config)["v1.far.example.com"]; !ok {
		t.Error("what somebody wrote is gone")
	}
}
