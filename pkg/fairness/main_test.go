package fairness_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/leaktest"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

func TestMain(m *testing.M) {
	os.Exit(leaktest.Run(m))
}

// limit bounds what a test waits for.
const limit = 2 * time.Minute

// server is one that runs, and its clients.
type server struct {
	*kubernetes.Clientset // with all rights, in the process
	url                   string
}

// serve runs a server until the test ends. Users come with the header X-Name,
// and with X-Group when they are in a group; everybody may do everything.
func serve(t *testing.T, parts ...controlplane.Part) *server {
	t.Helper()
	return serveLogging(t, slog.Default(), parts...)
}

// serveLogging is serve with a logger, which requests have as with a listener of the server.
func serveLogging(t *testing.T, logger *slog.Logger, parts ...controlplane.Part) *server {
	t.Helper()
	s, err := builder(parts...).Log(logger).Build()
	if err != nil {
		t.Fatalf("build: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	front := httptest.NewUnstartedServer(s.Handler())
	front.Config.BaseContext = func(net.Listener) context.Context {
		return logr.NewContextWithSlogLogger(context.Background(), controlplane.LibraryLog(logger))
	}
	front.Start()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
		front.Close()
	})
	select {
	case <-s.Ready():
	case err := <-done:
		done <- nil
		t.Fatalf("run: %v", err)
	case <-time.After(limit):
		t.Fatal("the server is not ready in time")
	}
	config := s.ClientConfig()
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &server{client, front.URL}
}

func builder(parts ...controlplane.Part) *controlplane.Builder {
	everybody := controlplane.PartFunc(func(p *controlplane.Plan) error {
		p.Authenticate("names", authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
			name := r.Header.Get("X-Name")
			u := &user.DefaultInfo{Name: name, Groups: r.Header.Values("X-Group")}
			return &authenticator.Response{User: u}, name != "", nil
		}))
		p.Authorize("all", authorizerfactory.NewAlwaysAllowAuthorizer())
		return nil
	})
	return controlplane.New("fairness-test").Storage(memory.Store{}).
		With(everybody, core.Namespaces{}, core.ConfigMaps{}).With(parts...)
}

// as is a client of a user that takes the first answer for one.
func (s *server) as(t *testing.T, name string, groups ...string) rest.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: s.url, QPS: -1, WrapTransport: func(next http.RoundTripper) http.RoundTripper {
		return named{name, groups, next}
	}})
	if err != nil {
		t.Fatal(err)
	}
	return client.CoreV1().RESTClient()
}

// named adds the user's name and groups to requests.
type named struct {
	name   string
	groups []string
	next   http.RoundTripper
}

func (n named) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("X-Name", n.name)
	for _, g := range n.groups {
		r.Header.Add("X-Group", g)
	}
	return n.next.RoundTrip(r)
}
