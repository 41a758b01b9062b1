package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/middleware"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

func TestProfiling(t *testing.T) {
	t.Parallel()
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(tokens, []byte("a,admin,1,system:masters\nb,bob,2\nc,carol,3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := controlplane.New("profiling").Storage(memory.Store{}).
		With(core.Namespaces{}, authn.Tokens{File: tokens}, authz.RBAC{}, middleware.Profiling{}).Build()
	if err != nil {
		t.Fatal(err)
	}
	run(t, s)
	web := httptest.NewServer(s.Handler())
	t.Cleanup(web.Close)
	mayProfile(t, s, "carol")
	for tries := 0; tries < 1000; tries++ { // RBAC follows the stored roles
		if code, _ := get(t, web.URL+"/debug/pprof/cmdline", "c"); code != http.StatusForbidden {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	cases := map[string]struct {
		token, path string
		code        int
		begins      string
	}{
		"nobody":     {"", "/debug/pprof/", http.StatusUnauthorized, ""},
		"a user":     {"b", "/debug/pprof/heap", http.StatusForbidden, ""},
		"of a role":  {"c", "/debug/pprof/heap", http.StatusOK, "\x1f\x8b"},
		"the index":  {"a", "/debug/pprof/", http.StatusOK, "<html>"},
		"redirected": {"a", "/debug/pprof", http.StatusOK, "<html>"},
		// A request that is not long-running ends with its timeout.
		"a long one":     {"a", "/debug/pprof/profile?seconds=1&timeout=10ms", http.StatusOK, "\x1f\x8b"},
		"something else": {"a", "/debug/flags/v", http.StatusNotFound, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			code, body := get(t, web.URL+c.path, c.token)
			if code != c.code || !bytes.HasPrefix(body, []byte(c.begins)) {
				t.Errorf("GET %s: %d, %.100q; want %d and %q", c.path, code, body, c.code, c.begins)
			}
		})
	}
	if _, err := s.Plane(t.Context(), "tenant", middleware.Profiling{}); !errors.Is(err, controlplane.ErrServerOnly) {
		t.Errorf("a further plane with profiles of the process: %v, want %v", err, controlplane.ErrServerOnly)
	}
}

// get returns the code and the body of an answer.
func get(t *testing.T, url, token string) (int, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, body
}

// mayProfile gives a user the rule that the documentation of the part names.
func mayProfile(t *testing.T, s *controlplane.Server, user string) {
	t.Helper()
	c, err := kubernetes.NewForConfig(s.ClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	meta := metav1.ObjectMeta{Name: "profiler"}
	_, err = c.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"get"}, NonResourceURLs: []string{"/debug/pprof", "/debug/pprof/*"}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "profiler"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// run runs a server until the test ends.
func run(t *testing.T, s *controlplane.Server) {
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
	select {
	case <-s.Ready():
	case err := <-done:
		done <- err
		t.Fatalf("not ready: %v", err)
	}
}
