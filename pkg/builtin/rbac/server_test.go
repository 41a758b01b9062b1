package rbac

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// TestResources runs against one server: each sub-test works in names of its own.
func TestResources(t *testing.T) {
	t.Parallel()
	config := start(t, All())
	for name, test := range map[string]func(*testing.T, *rest.Config){
		"Role": roleLife, "Binding": bindingLife, "Invalid": invalidObjects, "Apply": applied, "Table": tables, "Discovery": discovered,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, config)
		})
	}
}

func roleLife(t *testing.T, config *rest.Config) {
	ctx, roles := t.Context(), client(t, config, "").Roles("life")
	w, err := roles.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	got, err := roles.Create(ctx, rolled("system: any name", may("get", "pods")), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Generation != 0 {
		t.Errorf("roles have no generation: %d", got.Generation)
	}
	got.Rules = append(got.Rules, may("list", "pods"))
	if got, err = roles.Update(ctx, got, metav1.UpdateOptions{}); err != nil || len(got.Rules) != 2 || got.Generation != 0 {
		t.Fatalf("update: %v, %v", got, err)
	}
	if got, err = roles.Update(ctx, rolled("put"), metav1.UpdateOptions{}); err != nil || got.Name != "put" {
		t.Fatalf("a PUT creates: %v, %v", got, err)
	}
	list, err := roles.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 {
		t.Fatalf("list: %v, %v", list, err)
	}
	if err := roles.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := roles.Get(ctx, "put", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("it is gone: %v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var events []string
	for len(events) < 5 {
		select {
		case e := <-w.ResultChan():
			events = append(events, string(e.Type))
		case <-ctx.Done():
			t.Fatalf("events: %v", events)
		}
	}
	if diff := cmp.Diff([]string{"ADDED", "MODIFIED", "ADDED", "DELETED", "DELETED"}, events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func bindingLife(t *testing.T, config *rest.Config) {
	ctx, c := t.Context(), client(t, config, "")
	b := bound("life", "view", "ann")
	b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: "ServiceAccount", Name: "a", Namespace: "b"})
	got, err := c.RoleBindings("life").Create(ctx, b, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.RoleRef.APIGroup != rbacv1.GroupName || got.Subjects[0].APIGroup != rbacv1.GroupName || got.Subjects[1].APIGroup != "" {
		t.Errorf("groups are filled in: %+v", got)
	}
	got.Subjects = got.Subjects[:1]
	if got, err = c.RoleBindings("life").Update(ctx, got, metav1.UpdateOptions{}); err != nil || len(got.Subjects) != 1 || got.Generation != 0 {
		t.Fatalf("subjects change: %v, %v", got, err)
	}
	if _, err := c.ClusterRoleBindings().Create(ctx, clusterBound("life", "view", "ann"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const want = `roleRef: Invalid value: {"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"edit"}: cannot change roleRef`
	patch := []byte(`{"roleRef":{"name":"edit"}}`)
	_, err = c.RoleBindings("life").Patch(ctx, "life", types.MergePatchType, patch, metav1.PatchOptions{})
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a binding keeps its role: got %v", err)
	}
	_, err = c.ClusterRoleBindings().Patch(ctx, "life", types.MergePatchType, patch, metav1.PatchOptions{})
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a cluster binding keeps its role: got %v", err)
	}
}

func invalidObjects(t *testing.T, config *rest.Config) {
	ctx, c := t.Context(), client(t, config, "")
	_, err := c.Roles("invalid").Create(ctx, rolled("a%b", rbacv1.PolicyRule{}), metav1.CreateOptions{})
	for _, want := range []string{
		`Role.rbac.authorization.k8s.io "a%b" is invalid`, `metadata.name: Invalid value: "a%b": may not contain '%'`,
		`rules[0].verbs: Required value: verbs must contain at least one value`,
	} {
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	r := clusterRolled("invalid")
	r.AggregationRule = &rbacv1.AggregationRule{}
	if _, err := c.ClusterRoles().Create(ctx, r, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("an aggregation rule has selectors: got %v", err)
	}
	b := clusterBound("invalid", "view", "ann")
	b.Subjects[0] = rbacv1.Subject{Kind: "ServiceAccount", Name: "a"}
	if _, err := c.ClusterRoleBindings().Create(ctx, b, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("an account is in a namespace: got %v", err)
	}
}

func applied(t *testing.T, config *rest.Config) {
	ctx, c := t.Context(), client(t, config, "")
	for range 2 {
		got, err := c.ClusterRoleBindings().Patch(ctx, "applied", types.ApplyPatchType, []byte(`{"apiVersion":"rbac.authorization.k8s.io/v1",`+
			`"kind":"ClusterRoleBinding","metadata":{"name":"applied"},"roleRef":{"kind":"ClusterRole","name":"a"},"subjects":[{"kind":"Group","name":"b"}]}`), metav1.PatchOptions{FieldManager: "me"})
		if err != nil {
			t.Fatal(err)
		}
		if got.RoleRef.APIGroup != rbacv1.GroupName || len(got.Subjects) != 1 {
			t.Errorf("apply creates, and changes nothing after: %+v", got)
		}
	}
}

// tables are as kubectl prints them for kube-apiserver.
func tables(t *testing.T, config *rest.Config) {
	ctx, c := t.Context(), client(t, config, "")
	b := bound("table", "view", "ann")
	if _, err := c.RoleBindings("table").Create(ctx, b, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ClusterRoleBindings().Create(ctx, clusterBound("table", "view", "ann"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Roles("table").Create(ctx, rolled("table"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ClusterRoles().Create(ctx, clusterRolled("table"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	roleColumns, bindingColumns := []string{"Name", "Created At"}, []string{"Name", "Role", "Age", "Users+", "Groups+", "ServiceAccounts+"}
	for path, want := range map[string][]string{
		"namespaces/table/roles": roleColumns, "clusterroles": roleColumns,
		"namespaces/table/rolebindings": bindingColumns, "clusterrolebindings": bindingColumns,
	} {
		raw, err := c.RESTClient().Get().AbsPath("/apis/rbac.authorization.k8s.io/v1/"+path+"/table").
			SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var got metav1.Table
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, column := range got.ColumnDefinitions {
			name := column.Name
			if column.Priority > 0 {
				name += "+"
			}
			names = append(names, name)
		}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("%s: columns, + for wide (-want +got):\n%s", path, diff)
		}
		cells := got.Rows[0].Cells
		if len(want) == 6 && (cells[1] != "ClusterRole/view" || cells[3] != "ann") {
			t.Errorf("%s: %v", path, cells)
		}
	}
}

func discovered(t *testing.T, config *rest.Config) {
	c, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	list, err := c.ServerResourcesForGroupVersion("rbac.authorization.k8s.io/v1")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, r := range list.APIResources {
		scope := "cluster"
		if r.Namespaced {
			scope = "namespace"
		}
		got[r.Name] = strings.Join(append([]string{scope, r.SingularName, strings.Join(r.ShortNames, ",")}, r.Verbs...), " ")
	}
	const verbs = "  create delete deletecollection get list patch update watch"
	want := map[string]string{
		"roles":               "namespace role" + verbs,
		"rolebindings":        "namespace rolebinding" + verbs,
		"clusterroles":        "cluster clusterrole" + verbs,
		"clusterrolebindings": "cluster clusterrolebinding" + verbs,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("discovery is as kube-apiserver's (-want +got):\n%s", diff)
	}
}
