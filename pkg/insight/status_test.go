package insight_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
	"github.com/sailplane-dev/sailplane/pkg/builtin/rbac"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/fairness"
	"github.com/sailplane-dev/sailplane/pkg/insight"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// limit bounds what a test waits for.
const limit = 2 * time.Minute

// server is one that runs.
type server struct {
	*controlplane.Server
	url string
}

// serve runs a server until the test ends. Users come with the header X-Name, and
// user root is the administrator.
func serve(t *testing.T, status insight.Status, parts ...controlplane.Part) *server {
	t.Helper()
	s, err := controlplane.New("insight-test").Storage(memory.Store{}).
		With(names(), core.Namespaces{}, core.ConfigMaps{}, status).With(parts...).Build()
	if err != nil {
		t.Fatalf("build: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	front := httptest.NewServer(s.Handler())
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
	return &server{s, front.URL}
}

// names authenticates by a header.
func names() controlplane.Part {
	return controlplane.PartFunc(func(p *controlplane.Plan) error {
		p.Authenticate("names", authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
			u := &user.DefaultInfo{Name: r.Header.Get("X-Name")}
			if u.Name == "root" {
				u.Groups = []string{user.SystemPrivilegedGroup}
			}
			return &authenticator.Response{User: u}, u.Name != "", nil
		}))
		return nil
	})
}

// ask makes a request as a user, whose answer the caller closes.
func (s *server) ask(t *testing.T, name, method, path string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if name != "" {
		r.Header.Set("X-Name", name)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// code is that of the answer to a request.
func (s *server) code(t *testing.T, name, method, path string) int {
	t.Helper()
	answer := s.ask(t, name, method, path)
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode
}

// report is what root gets.
func (s *server) report(t *testing.T) *insight.Report {
	t.Helper()
	for {
		answer := s.ask(t, "root", http.MethodGet, insight.Path)
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode == http.StatusServiceUnavailable {
			continue // the part's work has not begun
		}
		r := &insight.Report{}
		if err := json.Unmarshal(body, r); err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%s, %v: %s", answer.Status, err, body)
		}
		return r
	}
}

// until waits for a report.
func (s *server) until(t *testing.T, what string, holds func(*insight.Report) bool) *insight.Report {
	t.Helper()
	for end := time.Now().Add(limit); ; {
		r := s.report(t)
		if holds(r) {
			return r
		}
		if time.Now().After(end) {
			t.Fatalf("not in time: %s: %+v", what, r)
		}
	}
}

// of is what a user of the root plane asked for.
func of(r *insight.Report, name string) insight.User {
	i := slices.IndexFunc(r.Total.Users, func(u insight.User) bool { return u.User == name && u.Plane == "" })
	if i < 0 {
		return insight.User{}
	}
	u := r.Total.Users[i]
	u.Seconds = 0
	return u
}

// TestWhoMaySee: who is authorized sees the report, and nobody else.
func TestWhoMaySee(t *testing.T) {
	t.Parallel()
	s := serve(t, insight.Status{}, rbac.All(), authz.RBAC{})
	client, err := kubernetes.NewForConfig(s.ClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	s.report(t)
	for name, want := range map[string]int{"": http.StatusUnauthorized, "ann": http.StatusForbidden, "root": http.StatusOK} {
		if got := s.code(t, name, http.MethodGet, insight.Path); got != want {
			t.Errorf("%q gets %d: want %d", name, got, want)
		}
	}
	roles := client.RbacV1()
	_, err = roles.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "look"},
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{insight.Path}, Verbs: []string{"get"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = roles.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "look"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "look"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "ann"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(limit); s.code(t, "ann", http.MethodGet, insight.Path) != http.StatusOK; {
		if time.Now().After(end) {
			t.Fatal("ann has a role, and is still refused")
		}
	}
	for method, want := range map[string]int{http.MethodPost: http.StatusMethodNotAllowed, http.MethodHead: http.StatusOK} {
		if got := s.code(t, "root", method, insight.Path); got != want {
			t.Errorf("%s gets %d: want %d", method, got, want)
		}
	}
	if got := s.code(t, "ann", http.MethodPost, insight.Path); got != http.StatusForbidden {
		t.Errorf("ann, who may get, posts and gets %d: want 403", got)
	}
}

// TestUsersAreCounted: requests and errors are those of who logged in, however many
// ask at once.
func TestUsersAreCounted(t *testing.T) {
	t.Parallel()
	s := serve(t, insight.Status{}, rbac.All(), authz.RBAC{})
	s.report(t)
	const each = 40
	var asking sync.WaitGroup
	for _, name := range []string{"ann", "bob", "root"} {
		for range 4 {
			asking.Go(func() {
				for range each / 4 {
					s.code(t, name, http.MethodGet, "/api/v1/namespaces/default/configmaps")
				}
			})
		}
	}
	s.code(t, "", http.MethodGet, "/api/v1/namespaces")
	asking.Wait()
	// A request is counted a moment after its answer.
	r := s.until(t, "all requests are counted", func(r *insight.Report) bool {
		return of(r, "ann").Requests == each && of(r, "bob").Requests == each && of(r, "root").Requests > each
	})
	for name, want := range map[string]insight.User{
		"ann": {User: "ann", Requests: each, Errors: each}, "bob": {User: "bob", Requests: each, Errors: each},
	} {
		if got := of(r, name); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	if root := of(r, "root"); root.Errors != 0 {
		t.Errorf("root: %+v, want no errors", root)
	}
	if len(r.Recent.Users) == 0 || r.Recent.Seconds <= 0 || r.Recent.Seconds > 300 {
		t.Errorf("recently: %+v", r.Recent)
	}
	if slices.ContainsFunc(r.Total.Users, func(u insight.User) bool { return u.User == "" || u.Seconds <= 0 }) {
		t.Errorf("users: %+v: want names, and what their requests took", r.Total.Users)
	}
}

// TestWatchesAreOpen: watches are counted while they are open, and not after.
func TestWatchesAreOpen(t *testing.T) {
	t.Parallel()
	s := serve(t, insight.Status{}, authz.Func("all", func(context.Context, authz.Attributes) (authz.Decision, string, error) {
		return authz.Allow, "", nil
	}))
	before := s.report(t).Watches
	open := make([]*http.Response, 3)
	for i := range open {
		open[i] = s.ask(t, "ann", http.MethodGet, "/api/v1/configmaps?watch=1")
		t.Cleanup(func() { _ = open[i].Body.Close() })
	}
	r := s.until(t, "three watches are open", func(r *insight.Report) bool { return of(r, "ann").Watches == len(open) })
	if got := of(r, "ann"); got.Requests != 3 || r.Watches != before+3 {
		t.Errorf("ann: %+v, and %d watches in all: want three requests, and %d", got, r.Watches, before+3)
	}
	if !slices.ContainsFunc(r.Caches, func(c insight.Cache) bool { return c.Resource == "configmaps" && c.Caches == 1 }) {
		t.Errorf("caches: %+v, want configmaps", r.Caches)
	}
	for _, watch := range open {
		_ = watch.Body.Close()
	}
	r = s.until(t, "no watch is open", func(r *insight.Report) bool { return of(r, "ann").Watches == 0 })
	if got := of(r, "ann"); got.Requests != 3 || got.Errors != 0 {
		t.Errorf("ann: %+v, want three requests without errors", got)
	}
}

// TestSlowRequests: what took long is listed, with the beginning of its path, and
// what did not is not.
func TestSlowRequests(t *testing.T) {
	t.Parallel()
	const most = 10 * time.Millisecond
	path := "/" + strings.Repeat("long", 100)
	hold := controlplane.PartFunc(func(p *controlplane.Plan) error {
		p.Wrap(controlplane.Innermost, "hold", func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == path {
					<-time.After(2 * most)
				}
				next.ServeHTTP(w, r)
			})
		})
		return nil
	})
	s := serve(t, insight.Status{SlowAfter: most}, hold)
	if got := s.code(t, "root", http.MethodGet, path); got != http.StatusNotFound {
		t.Fatalf("the path gets %d: want 404", got)
	}
	watch := s.ask(t, "root", http.MethodGet, "/api/v1/configmaps?watch=1&timeoutSeconds=1")
	if _, err := io.Copy(io.Discard, watch.Body); err != nil {
		t.Error(err)
	}
	_ = watch.Body.Close()
	r := s.until(t, "the request is listed", func(r *insight.Report) bool {
		return slices.ContainsFunc(r.Slow, func(q insight.SlowRequest) bool { return q.Path == path[:200] })
	})
	for _, q := range r.Slow {
		if q.Seconds < r.SlowSeconds || strings.Contains(q.Path, "configmaps") || q.Verb == "watch" || len(q.Path) > 200 {
			t.Errorf("%+v is listed", q)
		}
		if q.Path == path[:200] && (q.User != "root" || q.Verb != "get" || q.Code != http.StatusNotFound || q.When.IsZero()) {
			t.Errorf("%+v: want user root, get, 404", q)
		}
	}
}

// TestWhatIsStored: objects and bytes of all planes, the storage and what is served.
func TestWhatIsStored(t *testing.T) {
	t.Parallel()
	s := serve(t, insight.Status{})
	blue, err := s.Plane(t.Context(), "blue", core.Namespaces{}, core.ConfigMaps{})
	if err != nil {
		t.Fatal(err)
	}
	const size = 10_000
	client := blue.Client().CoreV1().ConfigMaps("default")
	for i := range 3 {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)}, Data: map[string]string{"a": strings.Repeat("x", size)}}
		if _, err := client.Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	r := s.until(t, "the objects are counted", func(r *insight.Report) bool {
		return len(r.Planes) == 2 && r.Resources[0].Resource == "configmaps" && r.Resources[0].Objects == 3
	})
	if b := r.Resources[0].Bytes; b < 3*size || b > 3*size+3000 {
		t.Errorf("three objects of %d bytes take %d", size, b)
	}
	if root, blue := r.Planes[0], r.Planes[1]; root.Name != "" || !root.Ready || !root.Counted || blue.Name != "blue" ||
		!blue.Ready || !blue.Counted || blue.Bytes < 3*size || root.Bytes > size {
		t.Errorf("planes: %+v", r.Planes)
	}
	if !slices.ContainsFunc(r.Total.Users, func(u insight.User) bool { return u.Plane == "blue" && u.User == user.APIServerUser && u.Requests >= 3 }) {
		t.Errorf("users: %+v, want the one of plane blue", r.Total.Users)
	}
	st := r.Storage
	if st.Engine != "memory" || st.Revision == 0 || st.FileBytes == nil || *st.FileBytes < 3*size || st.LagRevisions == nil || st.Compacted.IsZero() {
		t.Errorf("storage: %+v", st)
	}
	if r.Served.Groups == 0 || r.Served.Resources != 2 {
		t.Errorf("served: %+v, want two resources", r.Served)
	}
	srv := r.Server
	if srv.Name != "insight-test" || srv.Kubernetes == "" || !srv.Ready || srv.MemoryBytes == 0 || srv.Goroutines == 0 || srv.UptimeSeconds <= 0 {
		t.Errorf("server: %+v", srv)
	}
	if r.Levels != nil {
		t.Errorf("levels: %+v, without flow control", r.Levels)
	}
	for _, name := range []string{"0", "1"} {
		if err := client.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s.until(t, "what is deleted no longer counts", func(r *insight.Report) bool {
		i := slices.IndexFunc(r.Resources, func(x insight.Resource) bool { return x.Resource == "configmaps" })
		return r.Resources[i].Objects == 1 && r.Resources[i].Bytes < size+1000
	})
	if err := blue.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := s.report(t); len(r.Planes) != 1 {
		t.Errorf("planes: %+v, want the root plane alone", r.Planes)
	}
}

// TestFailedChecks: the report of a server that is not ready says why.
func TestFailedChecks(t *testing.T) {
	t.Parallel()
	s := serve(t, insight.Status{}, controlplane.PartFunc(func(p *controlplane.Plan) error {
		p.Check(healthz.NamedCheck("tide", func(*http.Request) error { return errors.New("the tide is out") }))
		return nil
	}))
	r := s.report(t)
	if r.Server.Ready || len(r.Server.Failed) != 1 || r.Server.Failed[0] != (insight.Check{Name: "tide", Reason: "the tide is out"}) {
		t.Errorf("ready: %v, %+v: want the tide", r.Server.Ready, r.Server.Failed)
	}
}

// TestLevels: priority levels have what runs, waits and was refused.
func TestLevels(t *testing.T) {
	t.Parallel()
	s := serve(t, insight.Status{}, kube.FlowControl(), fairness.PriorityAndFairness{})
	r := s.until(t, "the levels of Kubernetes are there", func(r *insight.Report) bool { return len(r.Levels) >= 5 })
	i := slices.IndexFunc(r.Levels, func(l insight.Level) bool { return l.Name == "exempt" })
	if i < 0 {
		t.Fatalf("levels: %+v, want exempt", r.Levels)
	}
	// The request for the report, and that for the levels, are exempt and run.
	if l := r.Levels[i]; l.Executing < 2 || l.Waiting != 0 || l.Rejected != 0 {
		t.Errorf("exempt: %+v, want two requests that run", l)
	}
}

// TestOnlyServers: a further plane cannot have the part, and its users have no page.
func TestOnlyServers(t *testing.T) {
	t.Parallel()
	s := serve(t, insight.Status{})
	if _, err := s.Plane(t.Context(), "red", insight.Status{}); !errors.Is(err, controlplane.ErrServerOnly) {
		t.Errorf("got %v: want %v", err, controlplane.ErrServerOnly)
	}
	blue, err := s.Plane(t.Context(), "blue", core.Namespaces{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := blue.Client().Discovery().RESTClient().Get().AbsPath(insight.Path).Do(t.Context()).Raw()
	if err == nil {
		t.Errorf("a further plane has the page: %s", b)
	}
	if _, err := controlplane.New("x").Storage(memory.Store{}).With(insight.Status{SlowAfter: -1}).Build(); err == nil ||
		!strings.Contains(err.Error(), "field SlowAfter is -1ns") {
		t.Errorf("got %v: want one about SlowAfter", err)
	}
}
