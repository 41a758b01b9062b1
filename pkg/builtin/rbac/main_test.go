package rbac

import (
	"context"
	"os"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/leaktest"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

func TestMain(m *testing.M) {
	os.Exit(leaktest.Run(m))
}

// start runs a server until the test ends.
func start(t *testing.T, parts ...controlplane.Part) *rest.Config {
	t.Helper()
	server, err := controlplane.New("rbac-test").Storage(memory.Store{}).With(parts...).Build()
	if err != nil {
		t.Fatalf("build: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	select {
	case <-server.Ready():
	case err := <-done:
		done <- nil
		t.Fatalf("run: %v", err)
	case <-time.After(30 * time.Second):
		t.Fatal("the server is not ready after 30 s")
	}
	return server.ClientConfig()
}

// client is one for a user, or for the administrator when the name is empty.
func client(t *testing.T, config *rest.Config, user string, groups ...string) rbacclient.RbacV1Interface {
	t.Helper()
	config = rest.CopyConfig(config)
	config.QPS, config.Impersonate = -1, rest.ImpersonationConfig{UserName: user, Groups: groups}
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c.RbacV1()
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// may is a rule for resources of the core group.
func may(verb string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: list(verb), APIGroups: list(""), Resources: resources}
}

func rolled(name string, rules ...rbacv1.PolicyRule) *rbacv1.Role {
	return &rbacv1.Role{ObjectMeta: named(name), Rules: rules}
}

func clusterRolled(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: named(name), Rules: rules}
}

// bound gives a cluster role to a user, in a namespace.
func bound(name, role, user string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: named(name), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{Kind: "User", Name: user}},
	}
}

// clusterBound gives a cluster role to a user, everywhere.
func clusterBound(name, role, user string) *rbacv1.ClusterRoleBinding {
	b := bound(name, role, user)
	return &rbacv1.ClusterRoleBinding{ObjectMeta: b.ObjectMeta, RoleRef: b.RoleRef, Subjects: b.Subjects}
}
