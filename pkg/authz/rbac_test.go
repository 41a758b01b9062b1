package authz_test

import (
	"strings"
	"testing"
	"testing/fstest"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/builtin/authorization"
	"github.com/sailplane-dev/sailplane/pkg/builtin/coordination"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/builtin/rbac"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

const gadgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: gadgets, kind: Gadget}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`

func start(t *testing.T, d controlplane.Storage) (*rest.Config, func()) {
	t.Helper()
	return run(t, d,
		authz.RBAC{}, rbac.All(), authorization.All(), coordination.Leases{},
		core.Namespaces{}, core.ConfigMaps{}, core.Secrets{},
		crd.Definitions{FS: fstest.MapFS{"gadgets.yaml": {Data: []byte(gadgets)}}},
	)
}

// as is a client for a user with groups, or without a name for the administrator.
func as(t *testing.T, config *rest.Config, name string, groups ...string) *kubernetes.Clientset {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: groups}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func bind(t *testing.T, client *kubernetes.Clientset, namespace, role, user string) {
	t.Helper()
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}
	meta := metav1.ObjectMeta{Name: role + "-" + user}
	var err error
	if namespace == "" {
		_, err = client.RbacV1().ClusterRoleBindings().Create(t.Context(),
			&rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
	} else {
		_, err = client.RbacV1().RoleBindings(namespace).Create(t.Context(),
			&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestRBAC(t *testing.T) {
	storages := map[string]controlplane.Storage{
		"memory": memory.Store{},
		"sqlite": sqlite.File{Path: t.TempDir() + "/state.db"},
		"etcd":   etcd.Embedded{Dir: t.TempDir()},
	}
	for name, d := range storages {
		t.Run(name, func(t *testing.T) {
			config, _ := start(t, d)
			admin := as(t, config, "")
			for test, f := range map[string]func(*testing.T, *rest.Config, *kubernetes.Clientset){
				"defaults": defaults, "bindings": bindings, "aggregation": aggregation, "custom resources": customResources,
			} {
				t.Run(test, func(t *testing.T) { f(t, config, admin) })
			}
		})
	}
}

// defaults are what Kubernetes gives who is authenticated, and no more.
func defaults(t *testing.T, config *rest.Config, admin *kubernetes.Clientset) {
	stranger := as(t, config, "stranger", "system:authenticated")
	if _, err := stranger.Discovery().ServerGroups(); err != nil {
		t.Errorf("discovery: %v", err)
	}
	if _, err := stranger.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a stranger lists ConfigMaps: %v", err)
	}
	view, err := admin.RbacV1().ClusterRoles().Get(t.Context(), "view", metav1.GetOptions{})
	if err != nil || len(view.Rules) == 0 || view.AggregationRule == nil {
		t.Errorf("view is aggregated when the server is ready: %v, %v", view, err)
	}
}

func bindings(t *testing.T, config *rest.Config, admin *kubernetes.Clientset) {
	alice := as(t, config, "alice", "system:authenticated")
	bind(t, admin, "default", "edit", "alice")
	cm := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	until(t, "alice edits in default", func() bool {
		_, err := alice.CoreV1().ConfigMaps("default").Create(t.Context(), cm("hers"), metav1.CreateOptions{})
		return err == nil
	})
	_, err := alice.CoreV1().ConfigMaps("kube-system").Create(t.Context(), cm("hers"), metav1.CreateOptions{})
	want := `configmaps is forbidden: User "alice" cannot create resource "configmaps" in API group "" in the namespace "kube-system"`
	if !apierrors.IsForbidden(err) || err.Error() != want {
		t.Errorf("elsewhere: got %v, want %s", err, want)
	}
	// Nobody gives away what they do not hold.
	bind(t, admin, "", "system:aggregate-to-admin", "alice") // may write roles
	until(t, "alice writes roles", func() bool {
		_, err := alice.RbacV1().Roles("default").Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "mild"}, Rules: []rbacv1.PolicyRule{
			{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}},
		}}, metav1.CreateOptions{})
		return err == nil
	})
	_, err = alice.RbacV1().Roles("default").Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "wild"}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
	}}, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "attempting to grant RBAC permissions not currently held") {
		t.Errorf("more than she holds: %v", err)
	}
	if err := admin.RbacV1().RoleBindings("default").Delete(t.Context(), "edit-alice", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "what was given is taken", func() bool {
		_, err := alice.CoreV1().ConfigMaps("default").Get(t.Context(), "hers", metav1.GetOptions{})
		return apierrors.IsForbidden(err)
	})
}

// aggregation adds a role's rules to those it is labelled for.
func aggregation(t *testing.T, _ *rest.Config, admin *kubernetes.Clientset) {
	extra := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "extra", Labels: map[string]string{"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{"example.com"}, Resources: []string{"gadgets"}}},
	}
	if _, err := admin.RbacV1().ClusterRoles().Create(t.Context(), extra, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	has := func(name string) bool {
		role, err := admin.RbacV1().ClusterRoles().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range role.Rules {
			if r.Resources[0] == "gadgets" {
				return true
			}
		}
		return false
	}
	until(t, "view has the rule", func() bool { return has("view") })
	if err := admin.RbacV1().ClusterRoles().Delete(t.Context(), "extra", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "view has lost the rule", func() bool { return !has("view") })
}

func customResources(t *testing.T, config *rest.Config, admin *kubernetes.Clientset) {
	if _, err := admin.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "gadgeteer"},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"list"}, APIGroups: []string{"example.com"}, Resources: []string{"gadgets"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bind(t, admin, "", "gadgeteer", "bob")
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "bob"}
	bob, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	gvr := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gadgets"}
	until(t, "bob lists gadgets", func() bool {
		_, err := bob.Resource(gvr).List(t.Context(), metav1.ListOptions{})
		return err == nil
	})
	if _, err := bob.Resource(gvr).Namespace("default").Get(t.Context(), "x", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("bob gets a gadget: %v", err)
	}
}

// TestDefaultsAreKept restarts a plane whose default roles were changed.
func TestDefaultsAreKept(t *testing.T) {
	d := sqlite.File{Path: t.TempDir() + "/state.db"}
	config, stop := start(t, d)
	roles := as(t, config, "").RbacV1().ClusterRoles()
	change := func(name string, f func(*rbacv1.ClusterRole)) {
		role, err := roles.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		f(role)
		if _, err := roles.Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	change("system:discovery", func(r *rbacv1.ClusterRole) { r.Rules = nil })
	change("system:basic-user", func(r *rbacv1.ClusterRole) {
		r.Annotations["rbac.authorization.kubernetes.io/autoupdate"], r.Rules = "false", nil
	})
	change("view", func(r *rbacv1.ClusterRole) { r.Labels = nil })
	change("system:monitoring", func(r *rbacv1.ClusterRole) {
		r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"no": "role"}}}}
		r.Rules = nil
	})
	if err := roles.Delete(t.Context(), "cluster-admin", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	changeBindings(t, as(t, config, "").RbacV1().ClusterRoleBindings())
	stop()
	config, _ = start(t, d)
	checkBindings(t, as(t, config, "").RbacV1().ClusterRoleBindings())
	roles = as(t, config, "").RbacV1().ClusterRoles()
	for name, rules := range map[string]bool{"system:discovery": true, "system:basic-user": false, "cluster-admin": true} {
		role, err := roles.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || (len(role.Rules) > 0) != rules {
			t.Errorf("%s after a restart: %v, %v", name, role, err)
		}
	}
	if view, err := roles.Get(t.Context(), "view", metav1.GetOptions{}); err != nil || len(view.Labels) != 2 || len(view.Rules) == 0 {
		t.Errorf("view has its labels and rules after a restart: %v, %v", view, err)
	}
	if role, err := roles.Get(t.Context(), "system:monitoring", metav1.GetOptions{}); err != nil || role.AggregationRule != nil || len(role.Rules) == 0 {
		t.Errorf("an aggregation that would take the rules away is gone after a restart: %v, %v", role, err)
	}
}

func changeBindings(t *testing.T, bindings typed.ClusterRoleBindingInterface) {
	t.Helper()
	for name, change := range map[string]func(*rbacv1.ClusterRoleBinding){
		"system:basic-user": func(b *rbacv1.ClusterRoleBinding) { b.Subjects[0].Name = "others" },
		"system:monitoring": func(b *rbacv1.ClusterRoleBinding) { b.RoleRef.Name = "view" },
		"system:discovery": func(b *rbacv1.ClusterRoleBinding) {
			b.RoleRef.Name, b.Annotations = "view", map[string]string{"rbac.authorization.kubernetes.io/autoupdate": "false"}
		},
	} {
		b, err := bindings.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := bindings.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil { // the reference to a role cannot be changed
			t.Fatal(err)
		}
		b.ObjectMeta = metav1.ObjectMeta{Name: name, Annotations: b.Annotations, Labels: b.Labels}
		change(b)
		if _, err := bindings.Create(t.Context(), b, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := bindings.Delete(t.Context(), "cluster-admin", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func checkBindings(t *testing.T, bindings typed.ClusterRoleBindingInterface) {
	t.Helper()
	for name, want := range map[string]struct {
		reason, role string
		subjects     int
	}{
		"system:basic-user": {"who is missing is added, and who was added stays", "system:basic-user", 2},
		"system:monitoring": {"one of another role is made anew", "system:monitoring", 1},
		"system:discovery":  {"unless somebody wants to keep theirs", "view", 1},
		"cluster-admin":     {"one that is gone is made again", "cluster-admin", 1},
	} {
		b, err := bindings.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || b.RoleRef.Name != want.role || len(b.Subjects) != want.subjects {
			t.Errorf("%s after a restart: %s: %v, %v", name, want.reason, b, err)
		}
	}
}
