package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/builtin/rbac"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// says answers with the method and the path.
func says(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Method, " ", r.URL.Path) }

// raw gets a path as text.
func raw(t *testing.T, c kubernetes.Interface, path string) (string, error) {
	t.Helper()
	body, err := c.Discovery().RESTClient().Get().AbsPath(path).DoRaw(t.Context())
	return string(body), err
}

// TestHandle: a part's own path is served to those who may, and is in the index.
func TestHandle(t *testing.T) {
	t.Parallel()
	s := build(t, core.Namespaces{}, rbac.All(), authz.RBAC{}, controlplane.PartFunc(func(p *controlplane.Plan) error {
		p.Handle("/export", http.HandlerFunc(says))
		p.Handle("/files/", http.HandlerFunc(says))
		return nil
	}))
	run(t, s)
	admin := client(t, s.ClientConfig())
	for path, want := range map[string]string{"/export": "GET /export", "/files/a/b": "GET /files/a/b"} {
		if got, err := raw(t, admin, path); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", path, got, err, want)
		}
	}
	if got, err := raw(t, admin, "/export/more"); err == nil {
		t.Errorf("a path below one without a slash answers: %s", got)
	}
	if body, err := admin.Discovery().RESTClient().Post().AbsPath("/export").DoRaw(t.Context()); err != nil || string(body) != "POST /export" {
		t.Errorf("POST: %s, %v", body, err)
	}
	if index, err := raw(t, admin, "/"); err != nil || !strings.Contains(index, `"/export"`) {
		t.Errorf("the index is %s, %v", index, err)
	}
	config := s.ClientConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: "ann"}
	if _, err := raw(t, client(t, config), "/export"); !apierrors.IsForbidden(err) {
		t.Errorf("a user without a rule: %v", err)
	}
}

// TestHandleMistakes: paths that a part cannot have are told at Build.
func TestHandleMistakes(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"":            "the name is empty",
		"export":      "want a path like /export",
		"/a/../b":     "want a path like /export",
		"/":           "taken by the API server",
		"/apis/x/v1":  "taken by the API server",
		"/readyz/own": "taken by the API server",
	} {
		_, err := planOf(t, func(p *controlplane.Plan) { p.Handle(path, http.HandlerFunc(says)) })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", path, err, want)
		}
	}
	_, err := planOf(t, func(p *controlplane.Plan) {
		p.Handle("/export", http.HandlerFunc(says))
		p.Handle("/export", nil)
	})
	for _, want := range []string{`path "/export": part`, `path "/export" is nil`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestSources: what a resource is read from is a condition of the plane, which is ready without it.
func TestSources(t *testing.T) {
	t.Parallel()
	var fails atomic.Bool
	apples := apis.NewGroup(fruit.GroupVersion(), nil, nil, apis.Virtual[fruit.Apple, fruit.AppleList]("apples",
		apis.Poll(time.Hour, func(context.Context, apis.Query) ([]fruit.Apple, error) {
			if fails.Load() {
				return nil, errors.New("frost")
			}
			return []fruit.Apple{{ObjectMeta: metav1.ObjectMeta{Namespace: "garden", Name: "a"}}}, nil
		})))
	planes := make(chan *controlplane.Plane, 1)
	s := build(t, core.Namespaces{}, apples, controlplane.PartFunc(func(p *controlplane.Plan) error {
		p.Work(controlplane.Work{Name: "look", Run: func(_ context.Context, plane *controlplane.Plane) error {
			planes <- plane
			return nil
		}})
		return nil
	}))
	run(t, s)
	c := client(t, s.ClientConfig())
	const resource = "apples.fruit.example.com"
	if got := (<-planes).Sources(); len(got) != 1 || got[0].Asked || got[0].Resource.String() != resource {
		t.Errorf("before anybody asked: %v", got)
	}
	for _, c2 := range []struct {
		fails bool
		want  string
	}{{false, "[+]" + resource + " ok since "}, {true, "[-]" + resource + " failed since "}, {false, "[+]" + resource + " ok since "}} {
		fails.Store(c2.fails)
		_, err := raw(t, c, "/apis/fruit.example.com/v1/apples")
		if c2.fails != (err != nil) {
			t.Errorf("fails: %v, got %v", c2.fails, err)
		}
		got, err := raw(t, c, "/readyz/sources")
		if !strings.HasPrefix(got, c2.want) || c2.fails != (err != nil) {
			t.Errorf("got %q, %v, want %q", got, err, c2.want)
		}
		if c2.fails && !strings.HasSuffix(got, ": frost\n") {
			t.Errorf("it does not say why: %q", got)
		}
		if _, err := raw(t, c, "/readyz"); err != nil {
			t.Errorf("the plane is not ready: %v", err)
		}
	}
	metrics, err := raw(t, c, "/metrics")
	for _, want := range []string{
		`sailplane_source_reads_total{resource="` + resource + `",result="error"} 1`,
		`sailplane_source_reads_total{resource="` + resource + `",result="ok"} 2`,
	} {
		if err != nil || !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %s: %v", want, err)
		}
	}
}
