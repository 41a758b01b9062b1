package stress

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

func ask(h http.Handler) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/version", nil))
	return w
}

// TestHandlerOutsideOfRun asks the handler before the server runs and after it
// stopped: it answers 503, and the client configuration an error.
func TestHandlerOutsideOfRun(t *testing.T) {
	defer noLeak(t)()
	s := build(t, "handler", memory.Store{})
	h := s.Handler()
	unavailable := func(when string) {
		t.Helper()
		if w := ask(h); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Errorf("%s: code %d, Retry-After %q, want 503 and when to try again", when, w.Code, w.Header().Get("Retry-After"))
		}
	}
	unavailable("before Run")
	l := serve(t, s)
	cms := l.configMaps(t)
	if w := ask(h); w.Code != http.StatusUnauthorized {
		t.Errorf("while it runs: code %d, want 401: nobody logged in", w.Code)
	}
	l.mustStop()
	unavailable("after the stop")
	if _, err := cms.List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("a client of a stopped server got an answer")
	}
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "Run was called before") {
		t.Errorf("second Run: %v, want an error that says so", err)
	}
	unavailable("after a second Run")
}

// TestRunTwiceAtOnce calls Run while the server runs: it is refused, and the
// server goes on.
func TestRunTwiceAtOnce(t *testing.T) {
	defer noLeak(t)()
	l := serve(t, build(t, "twice", memory.Store{}))
	if err := l.server.Run(t.Context()); err == nil {
		t.Error("a second Run was not refused")
	}
	if _, err := l.configMaps(t).Create(t.Context(), configMap("still", "here"), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	l.mustStop()
}

// TestPortInUse starts a server at an address that is taken.
func TestPortInUse(t *testing.T) {
	for name, s := range stores() {
		t.Run(name, func(t *testing.T) {
			defer noLeak(t)()
			taken, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer taken.Close()
			dir := t.TempDir()
			err = controlplane.New("port").Listen(taken.Addr().String()).Storage(s.at(dir)).
				With(authn.Admin{}, core.Namespaces{}).Run(t.Context())
			if err == nil || !strings.Contains(err.Error(), taken.Addr().String()) || !strings.Contains(err.Error(), "in use") {
				t.Errorf("error %v, want one that names the address and says that it is in use", err)
			}
			s.onlyOwnFiles(t, dir)
		})
	}
}

// TestPartThatFails has a part fail while the server starts and while it runs.
// Run returns the error, which names the part, and leaves nothing.
func TestPartThatFails(t *testing.T) {
	broken := errors.New("broken")
	parts := map[string]controlplane.Part{
		"start": controlplane.PartFunc(func(p *controlplane.Plan) error {
			p.Work(controlplane.Work{Name: "x", Start: func(context.Context, *controlplane.Plane) error { return broken }})
			return nil
		}),
		"run": controlplane.PartFunc(func(p *controlplane.Plan) error {
			p.Work(controlplane.Work{Name: "x", Run: func(context.Context, *controlplane.Plane) error { return broken }})
			return nil
		}),
		"ready": controlplane.ServerPartFunc(func(p *controlplane.ServerPlan) error {
			p.Work(controlplane.Work{Name: "x", Start: func(context.Context, *controlplane.Plane) error { return broken }})
			return nil
		}),
		"link": controlplane.PartFunc(func(p *controlplane.Plan) error {
			p.Above("x", func(*controlplane.Plane, genericapiserver.DelegationTarget) (*controlplane.Link, error) {
				return nil, broken
			})
			return nil
		}),
		"identity": controlplane.ServerPartFunc(func(p *controlplane.ServerPlan) error {
			p.Identify("x", func(context.Context, net.Addr) (controlplane.Identity, error) {
				return controlplane.Identity{}, broken
			})
			return nil
		}),
	}
	for name, s := range stores() {
		for when, part := range parts {
			t.Run(name+"/"+when, func(t *testing.T) {
				defer noLeak(t)()
				dir := t.TempDir()
				b := controlplane.New("broken").Storage(s.at(dir)).With(core.Namespaces{}, core.ConfigMaps{},
					crd.Definitions{}, aggregator.APIServices{}, part)
				if when == "identity" {
					b.Listen("127.0.0.1:0")
				}
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				err := b.Run(ctx)
				if !errors.Is(err, broken) || ctx.Err() != nil {
					t.Errorf("error %v, want %v", err, broken)
				}
				if !strings.Contains(err.Error(), "part ") {
					t.Errorf("error %q does not name the part", err)
				}
				s.onlyOwnFiles(t, dir)
			})
		}
	}
}

// TestOneDirectoryTwoServers runs a second server on the storage of a first.
// It is refused, soon, with an error that names the place; the first goes on.
func TestOneDirectoryTwoServers(t *testing.T) {
	for name, s := range stores() {
		if !s.persistent {
			continue
		}
		t.Run(name, func(t *testing.T) {
			defer noLeak(t)()
			dir := t.TempDir()
			first := serve(t, build(t, "first", s.at(dir)))
			begun := time.Now()
			second := run(t, build(t, "second", s.at(dir)))
			select {
			case err := <-second.ended:
				if err == nil || !strings.Contains(err.Error(), dir) {
					t.Errorf("error %v, want one that names %s", err, dir)
				}
				t.Logf("after %v: %v", time.Since(begun).Round(time.Millisecond), err)
			case <-time.After(limit):
				t.Errorf("the second server neither failed nor was ready after %v", limit)
				second.cancel()
			case <-second.server.Ready():
				t.Error("the second server runs on the storage of the first")
				second.mustStop()
			}
			if _, err := first.configMaps(t).Create(t.Context(), configMap("first", "x"), metav1.CreateOptions{}); err != nil {
				t.Errorf("the first server afterwards: %v", err)
			}
			first.mustStop()
			l := serve(t, build(t, "third", s.at(dir)))
			if _, err := l.configMaps(t).Get(t.Context(), "first", metav1.GetOptions{}); err != nil {
				t.Errorf("the third server: %v", err)
			}
			l.mustStop()
		})
	}
}
