package authz_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/builtin/rbac"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// BenchmarkFilteredLists lists 10,000 ConfigMaps of 1 KiB: all of them as who
// may list, and filtered for who may get 100, all or none, by RBAC or by a
// function. The answer is read and not decoded.
func BenchmarkFilteredLists(b *testing.B) {
	every := authz.Func("hundredths", func(_ context.Context, a authz.Attributes) (authz.Decision, string, error) {
		if a.GetUser().GetName() == "func" && a.GetVerb() == "get" && strings.HasSuffix(a.GetName(), "00") {
			return authz.Allow, "", nil
		}
		return authz.NoOpinion, "", nil
	})
	parts := []controlplane.Part{
		authz.RBAC{},
		rbac.All(),
		core.Namespaces{},
		core.ConfigMaps{},
		authz.FilteredLists{Resources: []schema.GroupResource{{Resource: "configmaps"}}},
	}
	// Rules are listed once where all authorizers list them, and a function does not.
	withFunc, config := benchServer(b, append(parts, every)...), benchServer(b, parts...)
	admin := kubernetes.NewForConfigOrDie(config)
	var hundred []string
	for i := range 100 {
		hundred = append(hundred, fmt.Sprintf("map-%04d", i*100))
	}
	allow(b, admin, "lister", rbacv1.PolicyRule{Verbs: []string{"list"}})
	allow(b, admin, "rbac", rbacv1.PolicyRule{Verbs: []string{"get"}, ResourceNames: hundred})
	allow(b, admin, "getter", rbacv1.PolicyRule{Verbs: []string{"get"}})
	for name, tc := range map[string]struct {
		user  string
		limit int64
		want  int
	}{
		"everything":           {"lister", 0, 10000},
		"filtered 100":         {"rbac", 0, 100},
		"filtered 100 by Func": {"func", 0, 100},
		"filtered all":         {"getter", 0, 10000},
		"filtered none":        {"nobody", 0, 0},
		"first 500":            {"lister", 500, 500},
		"filtered, first 50":   {"rbac", 50, 50},
	} {
		b.Run(name, func(b *testing.B) {
			server := config
			if tc.user == "func" {
				server = withFunc
			}
			c := rest.CopyConfig(server)
			c.Impersonate.UserName, c.QPS = tc.user, -1
			client := kubernetes.NewForConfigOrDie(c).CoreV1().RESTClient()
			count := func() int {
				body, err := client.Get().Resource("configmaps").Param("limit", fmt.Sprint(tc.limit)).Do(b.Context()).Raw()
				if err != nil {
					return -1
				}
				return strings.Count(string(body), `"payload"`)
			}
			// The authorizer may still be reading the roles.
			for end := time.Now().Add(time.Minute); count() != tc.want; {
				if time.Now().After(end) {
					b.Fatalf("%d objects, want %d", count(), tc.want)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				if got := count(); got != tc.want {
					b.Fatalf("%d objects, want %d", got, tc.want)
				}
			}
		})
	}
}

// benchServer runs a server with 10,000 ConfigMaps.
func benchServer(b *testing.B, parts ...controlplane.Part) *rest.Config {
	b.Helper()
	s, err := controlplane.New("bench").Storage(memory.Store{}).With(parts...).Build()
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
	<-s.Ready()
	config := s.ClientConfig()
	config.QPS = -1
	maps := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")
	var creators sync.WaitGroup
	for c := range 16 {
		creators.Go(func() {
			for i := c; i < 10000; i += 16 {
				m := &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("map-%04d", i)},
					Data:       map[string]string{"payload": strings.Repeat("x", 1024)},
				}
				if _, err := maps.Create(b.Context(), m, metav1.CreateOptions{FieldManager: "bench"}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	creators.Wait()
	return config
}

// allow gives a user a rule about ConfigMaps, everywhere.
func allow(b *testing.B, admin kubernetes.Interface, user string, rule rbacv1.PolicyRule) {
	b.Helper()
	rule.APIGroups, rule.Resources = []string{""}, []string{"configmaps"}
	meta := metav1.ObjectMeta{Name: user}
	if _, err := admin.RbacV1().ClusterRoles().Create(b.Context(), &rbacv1.ClusterRole{
		ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule},
	}, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(b.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
}
