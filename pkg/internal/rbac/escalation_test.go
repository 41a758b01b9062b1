package rbac_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/sailplane-dev/sailplane/pkg/internal/rbac"
)

func TestUncovered(t *testing.T) {
	t.Parallel()
	reader := &store{
		clusterRoles: []*rbacv1.ClusterRole{
			clusterRole("all", rule("*", "*", "*"), urls("*", "*")),
			clusterRole("pods", rule("get,list", "-", "pods")),
		},
		clusterBindings: []*rbacv1.ClusterRoleBinding{
			clusterBinding("root", "all", aGroup("system:masters")),
			clusterBinding("broken", "gone", aUser("bob")),
		},
		bindings: map[string][]*rbacv1.RoleBinding{
			"shop": {binding("shop", "b", "ClusterRole", "pods", aUser("ann"), aUser("bob"))},
		},
	}
	wanted := []rbacv1.PolicyRule{rule("get", "-", "pods,secrets")}
	for name, tc := range map[string]struct {
		reason    string
		user      *user.DefaultInfo
		namespace string
		want      []rbacv1.PolicyRule
		err       bool
	}{
		"everything":      {"who holds all may give all", &user.DefaultInfo{Name: "root", Groups: list("system:masters")}, "", nil, false},
		"here":            {"what is held in the namespace counts there", &user.DefaultInfo{Name: "ann"}, "shop", []rbacv1.PolicyRule{rule("get", "-", "secrets")}, false},
		"elsewhere":       {"and nowhere else", &user.DefaultInfo{Name: "ann"}, "bank", []rbacv1.PolicyRule{rule("get", "-", "pods"), rule("get", "-", "secrets")}, false},
		"everywhere":      {"nor for the whole plane", &user.DefaultInfo{Name: "ann"}, "", []rbacv1.PolicyRule{rule("get", "-", "pods"), rule("get", "-", "secrets")}, false},
		"broken":          {"what cannot be read is said beside what is missing", &user.DefaultInfo{Name: "bob"}, "shop", []rbacv1.PolicyRule{rule("get", "-", "secrets")}, true},
		"broken, but all": {"and left out when nothing is", &user.DefaultInfo{Name: "bob", Groups: list("system:masters")}, "shop", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := rbac.New(reader).Uncovered(t.Context(), tc.user, tc.namespace, wanted)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want, +got):\n%s", tc.reason, diff)
			}
			if (err != nil) != tc.err {
				t.Errorf("%s: got error %v", tc.reason, err)
			}
		})
	}
}

func TestRulesOf(t *testing.T) {
	t.Parallel()
	a := rbac.New(&store{clusterRoles: []*rbacv1.ClusterRole{clusterRole("pods", rule("get", "-", "pods"))}})
	got, err := a.RulesOf(rbacv1.RoleRef{Kind: "ClusterRole", Name: "pods"}, "shop")
	if diff := cmp.Diff([]rbacv1.PolicyRule{rule("get", "-", "pods")}, got); diff != "" || err != nil {
		t.Errorf("rules of a role that is bound: error %v (-want, +got):\n%s", err, diff)
	}
	if _, err := a.RulesOf(rbacv1.RoleRef{Kind: "Role", Name: "pods"}, "shop"); err == nil {
		t.Error("rules of a role that is missing: got no error")
	}
}

func TestEscalationError(t *testing.T) {
	t.Parallel()
	begin := `user "u" (groups=["g" "h"]) is attempting to grant RBAC permissions not currently held:` + "\n"
	for name, tc := range map[string]struct {
		reason  string
		missing []rbacv1.PolicyRule
		unread  []error
		want    string
	}{
		"nothing":  {"who gives nothing away escalates nothing", nil, []error{errors.New("gone")}, ""},
		"one":      {"the words are those of Kubernetes", []rbacv1.PolicyRule{rule("get", "-", "secrets")}, nil, begin + `{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}`},
		"verbs":    {"verbs on one resource are joined", []rbacv1.PolicyRule{rule("get", "-", "pods"), rule("list", "-", "pods")}, nil, begin + `{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}`},
		"names":    {"but not those on several objects", []rbacv1.PolicyRule{rule("get", "-", "pods", "b"), rule("get", "-", "pods", "a"), rule("list", "-", "pods", "a")}, nil, begin + `{APIGroups:[""], Resources:["pods"], ResourceNames:["a"], Verbs:["get" "list"]}` + "\n" + `{APIGroups:[""], Resources:["pods"], ResourceNames:["b"], Verbs:["get"]}`},
		"urls":     {"URLs have no groups; lines are sorted and said once", []rbacv1.PolicyRule{urls("get", "/b"), urls("get", "/a"), urls("get", "/b")}, nil, begin + `{NonResourceURLs:["/a"], Verbs:["get"]}` + "\n" + `{NonResourceURLs:["/b"], Verbs:["get"]}`},
		"wide":     {"rules that were not split stay as they are", []rbacv1.PolicyRule{rule("get", "-,apps", "pods,services")}, nil, begin + `{APIGroups:["" "apps"], Resources:["pods" "services"], Verbs:["get"]}`},
		"unread":   {"what could not be read may be why", []rbacv1.PolicyRule{rule("get", "-", "pods")}, []error{errors.New("role gone")}, begin + `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}; resolution errors: [role gone]`},
		"no error": {"nil is no error", []rbacv1.PolicyRule{rule("get", "-", "pods")}, []error{nil}, begin + `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := ""
			if err := rbac.EscalationError(&user.DefaultInfo{Name: "u", Groups: list("g,h")}, tc.missing, tc.unread...); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want, +got):\n%s", tc.reason, diff)
			}
		})
	}
}
