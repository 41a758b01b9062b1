//go:build !race

package guard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/fairness"
	"github.com/sailplane-dev/sailplane/pkg/preset"
	"github.com/sailplane-dev/sailplane/pkg/serviceaccount"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

const (
	// token is that of a user who is no member of system:masters, whose requests
	// many parts let pass.
	token = "guarded"
	user  = "guard"
	// namespace has the objects that are listed.
	namespace = "listed"
)

// parts are those of "sailplane serve", without what depends on files.
func parts() controlplane.Parts {
	return controlplane.Parts{
		authz.RBAC{},
		serviceaccount.Tokens{},
		preset.Standard(),
		crd.Definitions{},
		aggregator.APIServices{},
		fairness.PriorityAndFairness{},
		kube.FlowControl(),
	}
}

// start runs a server in memory until the test ends.
func start(t *testing.T, b *controlplane.Builder) *controlplane.Server {
	t.Helper()
	s, err := b.Storage(memory.Store{}).Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-s.Ready():
	case err := <-ended:
		ended <- nil
		t.Fatal(errors.Join(errors.New("the server ended"), err))
	}
	return s
}

// withUser is a part that knows the user by the token.
func withUser(t *testing.T) controlplane.Part {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(file, []byte(token+","+user+",\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return authn.Tokens{File: file}
}

// mayEverything lets the user do everything, by a role.
func mayEverything(t *testing.T, s *controlplane.Server) {
	t.Helper()
	_, err := client(t, s).RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func client(t *testing.T, s *controlplane.Server) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(s.ClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// fillListed makes a namespace with so many ConfigMaps.
func fillListed(t *testing.T, s *controlplane.Server, objects int) {
	t.Helper()
	c := client(t, s)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := c.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range objects {
		cm := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("cm-%04d", i)},
			Data:       map[string]string{"value": strings.Repeat("x", 1024)},
		}
		if _, err := c.CoreV1().ConfigMaps(namespace).Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}
