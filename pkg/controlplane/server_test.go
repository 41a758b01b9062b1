package controlplane_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/admit"
	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/builtin/coordination"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/internal/leaktest"
	"github.com/sailplane-dev/sailplane/pkg/middleware"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// run runs a server until the test ends and returns when it is ready. The
// returned function stops it earlier.
func run(t *testing.T, s *controlplane.Server) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	t.Cleanup(stop)
	select {
	case <-s.Ready():
	case err := <-done:
		done <- err
		t.Fatalf("Run: %v", err)
	case <-time.After(time.Minute):
		t.Fatal("not ready after a minute")
	}
	return stop
}

func build(t *testing.T, parts ...controlplane.Part) *controlplane.Server {
	t.Helper()
	s, err := controlplane.New(t.Name()).Storage(memory.Store{}).With(parts...).Build()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func client(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"k": "v"}}
}

func TestReadyMeansReady(t *testing.T) {
	t.Parallel()
	s := build(t, core.Namespaces{}, core.ConfigMaps{}, aggregator.APIServices{})
	run(t, s)
	c := client(t, s.ClientConfig())
	for _, name := range []string{"default", "kube-system"} {
		if _, err := c.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Errorf("namespace %s right after Ready: %v", name, err)
		}
	}
	for _, path := range []string{"/readyz", "/livez", "/healthz", "/readyz/ping"} {
		if body, err := c.RESTClient().Get().AbsPath(path).Param("verbose", "true").DoRaw(t.Context()); err != nil {
			t.Errorf("%s right after Ready: %v\n%s", path, err, body)
		}
	}
	if _, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), configMap("a"), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}

func TestHandlerNeedsCredentials(t *testing.T) {
	t.Parallel()
	s := build(t, core.Namespaces{}, core.ConfigMaps{})
	get := func() int {
		w := &recorder{header: http.Header{}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/configmaps", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.RequestURI = "/api/v1/configmaps"
		s.Handler().ServeHTTP(w, r)
		return w.status
	}
	if got := get(); got != http.StatusServiceUnavailable {
		t.Errorf("before the start: %d, want 503", got)
	}
	stop := run(t, s)
	if got := get(); got != http.StatusUnauthorized {
		t.Errorf("without credentials: %d, want 401", got)
	}
	stop()
	if got := get(); got != http.StatusServiceUnavailable {
		t.Errorf("after the stop: %d, want 503", got)
	}
}

type recorder struct {
	header http.Header
	status int
}

func (r *recorder) Header() http.Header { return r.header }
func (r *recorder) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return len(p), nil
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}

func TestMiddlewareSlots(t *testing.T) {
	t.Parallel()
	order := make(chan string, 100)
	mark := func(name string) middleware.Func {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/version" {
					order <- name
				}
				next.ServeHTTP(w, r)
			})
		}
	}
	s := build(t,
		middleware.Innermost("innermost", mark("innermost")),
		controlplane.PartFunc(func(p *controlplane.Plan) error {
			p.Wrap(controlplane.AfterAudit, "audited", mark("audited"))
			return nil
		}),
		middleware.AfterAuthentication("after", mark("after")),
		middleware.BeforeAuthentication("before", mark("before")),
		middleware.Wrap("outer-1", mark("outer-1")), middleware.Wrap("outer-2", mark("outer-2")))
	run(t, s)
	if _, err := client(t, s.ClientConfig()).Discovery().ServerVersion(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"outer-1", "outer-2", "before", "after", "audited", "innermost"} {
		select {
		case got := <-order:
			if got != want {
				t.Errorf("got %s, want %s next", got, want)
			}
		default:
			t.Fatalf("%s was not called", want)
		}
	}
}

func TestAdmission(t *testing.T) {
	t.Parallel()
	s := build(t, core.Namespaces{}, core.ConfigMaps{},
		admit.ValidateObject("no-rotten", func(_ context.Context, cm, _ *corev1.ConfigMap, a admit.Attributes) error {
			if cm.Data["state"] == "rotten" {
				return fmt.Errorf("%s by %s is rotten", a.GetName(), a.GetUserInfo().GetName())
			}
			if cm.Labels["tasted"] != "yes" {
				return errors.New("mutation must come before validation")
			}
			return nil
		}),
		admit.MutateObject("taste", func(_ context.Context, cm, _ *corev1.ConfigMap, _ admit.Attributes) error {
			cm.Labels = map[string]string{"tasted": "yes"}
			return nil
		}))
	run(t, s)
	c := client(t, s.ClientConfig()).CoreV1().ConfigMaps("default")
	if _, err := c.Create(t.Context(), configMap("good"), metav1.CreateOptions{}); err != nil {
		t.Errorf("good: %v", err)
	}
	bad := configMap("bad")
	bad.Data["state"] = "rotten"
	_, err := c.Create(t.Context(), bad, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `admission "no-rotten" denied the request: bad by system:apiserver is rotten`) {
		t.Errorf("bad: %v", err)
	}
}

func TestStartErrors(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	broken := errors.New("broken")
	cases := map[string]struct {
		reason string
		b      *controlplane.Builder
		want   string
	}{
		"port in use": {
			reason: "a second server at the address says what to do",
			b:      controlplane.New("x").Listen(taken.Addr().String()).With(authn.Admin{}),
			want:   "the port is in use by another process: stop it or choose another port (0 picks a free one)",
		},
		"preparation": {
			reason: "a part that cannot prepare stops the start",
			b: controlplane.New("x").With(controlplane.PartFunc(func(p *controlplane.Plan) error {
				p.Work(controlplane.Work{Name: "seeds", Start: func(context.Context, *controlplane.Plane) error { return broken }})
				return nil
			})),
			want: `part "controlplane.PartFunc": seeds: broken`,
		},
		"background": {
			reason: "background work that fails stops the server",
			b: controlplane.New("x").With(controlplane.PartFunc(func(p *controlplane.Plan) error {
				p.Work(controlplane.Work{Name: "mill", Run: func(context.Context, *controlplane.Plane) error { return broken }})
				return nil
			})),
			want: `part "controlplane.PartFunc": mill: broken`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			defer leaktest.Check(t)()
			err := tc.b.Storage(memory.Store{}).Run(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: Run: %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

func TestStopEndsWatches(t *testing.T) {
	defer leaktest.Check(t)()
	s := build(t, core.Namespaces{}, core.ConfigMaps{}, aggregator.APIServices{})
	stop := run(t, s)
	w, err := client(t, s.ClientConfig()).CoreV1().ConfigMaps("").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stop()
	// The channel ends when the server ends the watch.
	for range w.ResultChan() {
	}
	_, err = client(t, s.ClientConfig()).Discovery().ServerVersion()
	if err == nil {
		t.Error("a stopped server answers")
	}
	if err := s.Run(t.Context()); err == nil {
		t.Error("a server ran twice")
	}
}

func TestMetricsAndIndex(t *testing.T) {
	t.Parallel()
	s := build(t, core.Namespaces{}, core.ConfigMaps{})
	run(t, s)
	c := client(t, s.ClientConfig())
	body, err := c.RESTClient().Get().AbsPath("/metrics").Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	if err != nil || !strings.Contains(string(text), "apiserver_request_total") {
		t.Errorf("/metrics: %v, %d bytes", err, len(text))
	}
	v, err := c.Discovery().ServerVersion()
	if err != nil || v.Major != "1" || v.Minor != "37" || !strings.HasPrefix(v.GitVersion, "v1.37.") || !strings.Contains(v.GitVersion, "+sailplane") {
		t.Errorf("/version: %+v, %v", v, err)
	}
}

// TestGroupListIsComplete: without an aggregator, GET /apis lists the groups of
// every part, and those of CRDs come and go.
func TestGroupListIsComplete(t *testing.T) {
	t.Parallel()
	s := build(t, core.Namespaces{}, coordination.Leases{}, crd.Definitions{FS: os.DirFS("../../config/samples")})
	run(t, s)
	c := client(t, s.ClientConfig())
	list := func() (names []string) {
		t.Helper()
		var groups metav1.APIGroupList
		raw, err := c.RESTClient().Get().AbsPath("/apis").SetHeader("Accept", "application/json").DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, &groups); err != nil {
			t.Fatal(err)
		}
		for _, g := range groups.Groups {
			names = append(names, g.Name)
		}
		slices.Sort(names)
		return names
	}
	want := []string{"apiextensions.k8s.io", "coordination.k8s.io", "example.com"}
	if got := list(); !slices.Equal(got, want) {
		t.Errorf("groups: %v, want %v", got, want)
	}
}
