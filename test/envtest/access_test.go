package envtest

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

func TestUsers(t *testing.T) {
	t.Parallel()
	env := &envtest.Environment{}
	_, admin := start(t, env)
	ctx := t.Context()
	ann, err := env.AddUser(envtest.User{Name: "ann", Groups: []string{"growers"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := clientOf(t, ann.Config())
	if err := c.List(ctx, &corev1.ConfigMapList{}, client.InNamespace("default")); !apierrors.IsForbidden(err) {
		t.Errorf("without a role: %v, want it forbidden", err)
	}
	if err := admin.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "growers"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "growers"}},
	}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the role of the group counts", func(ctx context.Context) error {
		return c.List(ctx, &corev1.ConfigMapList{}, client.InNamespace("default"))
	})
	kubectl, err := ann.Kubectl()
	if err != nil {
		t.Fatal(err)
	}
	out, stderr, err := kubectl.Run("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
	if err != nil {
		t.Fatalf("%v: %s", err, read(t, stderr))
	}
	if got := read(t, out); got != "ann" {
		t.Errorf("kubectl says %q, want ann", got)
	}
}

func read(t *testing.T, r io.Reader) string {
	t.Helper()
	var b bytes.Buffer
	if _, err := b.ReadFrom(r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestAnonymous asks what envtest and programs ask without credentials.
func TestAnonymous(t *testing.T) {
	t.Parallel()
	config, _ := start(t, &envtest.Environment{})
	anonymous := rest.AnonymousClientConfig(config)
	transport, err := rest.HTTPClientFor(anonymous)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{
		"/healthz":          http.StatusOK,
		"/livez":            http.StatusOK,
		"/readyz":           http.StatusOK,
		"/version":          http.StatusOK,
		"/api/v1/nodes":     http.StatusForbidden, // and not 401, as with kube-apiserver
		"/api/v1/configmap": http.StatusForbidden,
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSuffix(config.Host, "/")+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body := read(t, response.Body)
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s is %d, want %d: %s", request.URL, response.StatusCode, want, body)
		}
	}
}

// TestAlwaysAllow is for suites that want no authorization.
func TestAlwaysAllow(t *testing.T) {
	t.Parallel()
	env := &envtest.Environment{}
	env.ControlPlane.GetAPIServer().Configure().Set("authorization-mode", "AlwaysAllow")
	start(t, env)
	bob, err := env.AddUser(envtest.User{Name: "bob"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := clientOf(t, bob.Config()).Create(t.Context(), configMap("default", "bobs")); err != nil {
		t.Errorf("a user without roles: %v", err)
	}
}
