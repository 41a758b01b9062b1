package clients

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/builtin/coordination"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"

	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

// patience is how long a test waits for what takes milliseconds, on a busy machine.
const patience = 2 * time.Minute

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

// server is a running server and how clients reach it.
type server struct {
	// inProcess needs no socket, overTLS is the administrator's kubeconfig.
	inProcess, overTLS *rest.Config
}

// onEveryStorage runs a test against a server of its own on each storage. The
// server serves every built-in resource, the widgets of config and a typed
// group.
func onEveryStorage(t *testing.T, test func(t *testing.T, s *server)) {
	t.Helper()
	t.Parallel()
	for name, open := range map[string]func(dir string) controlplane.Storage{
		"memory": func(string) controlplane.Storage { return memory.Store{} },
		"sqlite": func(dir string) controlplane.Storage { return sqlite.File{Path: filepath.Join(dir, "state.db")} },
		"etcd":   func(dir string) controlplane.Storage { return etcd.Embedded{Dir: filepath.Join(dir, "etcd")} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, start(t, open))
		})
	}
}

func start(t *testing.T, open func(dir string) controlplane.Storage) *server {
	t.Helper()
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "admin.kubeconfig")
	s, err := controlplane.New("clients").Listen("127.0.0.1:0").Storage(open(dir)).With(
		authn.Admin{Kubeconfig: kubeconfig},
		core.Namespaces{}, core.ConfigMaps{}, core.Secrets{},
		coordination.Leases{},
		apis.NewGroup(fruit.GroupVersion(), nil, nil, apis.Resource[fruit.Apple, fruit.AppleList]("apples")),
		crd.Definitions{FS: os.DirFS(filepath.Join("..", "..", "config", "samples"))},
		aggregator.APIServices{},
	).Build()
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("the server ended: %v", err)
			}
		case <-time.After(patience):
			t.Error("the server does not stop")
		}
	})
	select {
	case <-s.Ready():
	case err := <-done:
		done <- nil
		t.Fatalf("the server ended before it was ready: %v", err)
	case <-time.After(patience):
		t.Fatal("the server is not ready")
	}
	overTLS, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	must(t, err)
	overTLS.QPS = -1
	return &server{inProcess: s.ClientConfig(), overTLS: overTLS}
}

// ways are the two ways a client reaches the server.
func (s *server) ways() map[string]*rest.Config {
	return map[string]*rest.Config{"in process": s.inProcess, "over TLS": s.overTLS}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits for what has no event a test could wait for.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for begun := time.Now(); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > patience {
			t.Fatalf("%s: not after %v", what, patience)
		}
	}
}

// receive returns the next value of a channel.
func receive[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v, open := <-c:
		if !open {
			t.Fatalf("%s: the channel is closed", what)
		}
		return v
	case <-time.After(patience):
		t.Fatalf("%s: nothing after %v", what, patience)
	}
	panic("unreachable")
}

// recorder keeps what a client asked and was told.
type recorder struct {
	mu       sync.Mutex
	requests []*http.Request
	types    []string // Content-Type of each answer
	// change may change a request before it is sent.
	change func(*http.Request)
}

// wrap returns a copy of the configuration whose requests are recorded.
func (r *recorder) wrap(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			req = req.Clone(req.Context())
			if r.change != nil {
				r.change(req)
			}
			resp, err := next.RoundTrip(req)
			r.mu.Lock()
			defer r.mu.Unlock()
			r.requests = append(r.requests, req)
			if err == nil {
				r.types = append(r.types, resp.Header.Get("Content-Type"))
			}
			return resp, err
		})
	})
	return c
}

// count says how many requests had the given verb-like query parameters, such as "watch=true".
func (r *recorder) count(path string, with, without []string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, req := range r.requests {
		if !strings.HasSuffix(req.URL.Path, path) || req.Method != http.MethodGet {
			continue
		}
		query, matches := "&"+req.URL.RawQuery+"&", true
		for _, w := range with {
			matches = matches && strings.Contains(query, "&"+w+"&")
		}
		for _, w := range without {
			matches = matches && !strings.Contains(query, "&"+w+"&")
		}
		if matches {
			n++
		}
	}
	return n
}

func (r *recorder) contentTypes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.types...)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
