package projections

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/planetest"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

// garden is a server that can be stopped and started again at its address. Requests go over a
// socket, so that what it runs is not counted as the plane's.
type garden struct {
	t    *testing.T
	file string
	at   *httptest.Server
	now  atomic.Pointer[http.RoundTripper] // nil while it is away
	stop func()
}

func newGarden(t *testing.T) *garden {
	t.Helper()
	g := &garden{t: t, file: filepath.Join(t.TempDir(), "garden.db")}
	g.at = httptest.NewServer(&httputil.ReverseProxy{
		Transport: g, FlushInterval: -1, ErrorLog: log.New(t.Output(), "", 0),
		Rewrite:      func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "garden" },
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	})
	t.Cleanup(g.at.Close)
	return g
}

// RoundTrip implements http.RoundTripper.
func (g *garden) RoundTrip(r *http.Request) (*http.Response, error) {
	now := g.now.Load()
	if now == nil {
		return nil, syscall.ECONNREFUSED
	}
	return (*now).RoundTrip(r)
}

// dial connects to the server, as long as it is there.
func (g *garden) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if g.now.Load() == nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// start has the server run until stop is called.
func (g *garden) start() *rest.Config {
	g.t.Helper()
	s, err := controlplane.New("garden").Storage(sqlite.File{Path: g.file}).
		With(core.Namespaces{}, crd.Definitions{FS: definitions()}).Build()
	must(g.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	g.stop = func() {
		g.now.Store(nil)
		g.at.CloseClientConnections()
		cancel()
		must(g.t, <-done)
	}
	select {
	case <-s.Ready():
	case err := <-done:
		g.t.Fatalf("the server ended: %v", err)
	}
	transport, err := rest.TransportFor(s.ClientConfig())
	must(g.t, err)
	g.now.Store(&transport)
	return s.ClientConfig()
}

// trees are those of the server that runs.
func (g *garden) trees(c *rest.Config) dynamic.ResourceInterface {
	g.t.Helper()
	d, err := dynamic.NewForConfig(c)
	must(g.t, err)
	return d.Resource(trees).Namespace("default")
}

// tree is one whose apples are Galas.
func tree(name string, secret bool) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "garden.example.com/v1", "kind": "Tree", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"cultivar": "Gala", "secret": secret},
	}}
}

// over is the backing of a view of the server's trees.
func (g *garden) over() apis.Backing {
	return apis.Over("garden.example.com/v1", "trees").At(&rest.Config{Host: g.at.URL, Dial: g.dial})
}

// TestOtherServer: a view of another server's resource has its informers go on while that server
// is away, and says why it cannot answer.
func TestOtherServer(t *testing.T) {
	t.Parallel()
	g := newGarden(t)
	below := g.trees(g.start())
	t.Cleanup(func() { g.stop() })
	p := planetest.Start(t, view(g.over()))
	create(t, below, tree("first", false))
	create(t, below, tree("hidden", true))

	ctx, cancel := context.WithCancel(t.Context())
	factory := dynamicinformer.NewDynamicSharedInformerFactory(p.Dynamic(), 0)
	defer factory.Shutdown()
	defer cancel()
	informer := factory.ForResource(apples).Informer()
	factory.Start(ctx.Done())
	has := func(want ...string) {
		t.Helper()
		p.Eventually(t, func(context.Context) error {
			keys := informer.GetStore().ListKeys()
			for _, name := range want {
				if _, found, _ := informer.GetStore().GetByKey("default/" + name); !found {
					return fmt.Errorf("the informer lacks %s: %v", name, keys)
				}
			}
			if len(keys) != len(want) {
				return fmt.Errorf("the informer has %v, not %v", keys, want)
			}
			return nil
		})
	}
	has("first")
	create(t, in(p, "default", apples), apple("second", "Gala"))
	has("first", "second")

	g.stop()
	_, err := in(p, "default", apples).List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsServiceUnavailable(err) {
		t.Errorf("without the server below a list is answered with %v", err)
	}
	for _, part := range []string{"apples.fruit.example.com", "trees.garden.example.com", g.at.URL, "connection refused"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q: %v", part, err)
		}
	}
	below = g.trees(g.start())
	create(t, below, tree("third", false))
	must(t, below.Delete(t.Context(), "first", metav1.DeleteOptions{}))
	has("second", "third")
}
