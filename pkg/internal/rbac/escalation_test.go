package rbac_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/sailplane-dev/sailplane/pkg/internal/rbac"
)

func TestConfirm(t *testing.T) {
	t.Parallel()
	reader := &store{
		clusterRoles: []*rbacv1.ClusterRole{
			clusterRole("all", rule("*", "*", "*"), urls("*", "*")),
			clusterRole("pods", rule("get,list", "-", "pods")),
			clusterRole("names", rule("get", "-", "secrets", "a")),
		},
		clusterBindings: []*rbacv1.ClusterRoleBinding{
			clusterBinding("root", "all", aGroup("system:masters")),
			clusterBinding("broken", "gone", aUser("bob")),
			clusterBinding("lost", "lost", aUser("bob")),
		},
		bindings: map[string][]*rbacv1.RoleBinding{
			"shop": {
				binding("shop", "b", "ClusterRole", "pods", aUser("ann"), aUser("bob")),
				binding("shop", "c", "ClusterRole", "names", aUser("ann")),
			},
		},
	}
	type rules = []rbacv1.PolicyRule
	wanted := rules{rule("get", "-", "pods,secrets")}
	pods, secrets := `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`, `{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}`
	ann, bob := &user.DefaultInfo{Name: "ann", Groups: list("g,h")}, &user.DefaultInfo{Name: "bob"}
	for name, tc := range map[string]struct {
		reason    string
		user      *user.DefaultInfo
		namespace string
		wanted    rules
		want      string // what is missing
	}{
		"everything":      {"who holds all may give all", &user.DefaultInfo{Name: "root", Groups: list("system:masters")}, "", wanted, ""},
		"nothing":         {"who gives nothing away escalates nothing", ann, "", nil, ""},
		"here":            {"what is held in the namespace counts there", ann, "shop", wanted, secrets},
		"elsewhere":       {"and nowhere else", ann, "bank", wanted, pods + "\n" + secrets},
		"everywhere":      {"nor for the whole plane", ann, "", wanted, pods + "\n" + secrets},
		"broken":          {"what could not be read may be why", bob, "shop", wanted, secrets + `; resolution errors: [[clusterrole.rbac.authorization.k8s.io "gone" not found, clusterrole.rbac.authorization.k8s.io "lost" not found]]`},
		"broken, but all": {"and is left out when nothing is missing", &user.DefaultInfo{Name: "bob", Groups: list("system:masters")}, "shop", wanted, ""},
		"all verbs":       {"every verb of today is not *", ann, "shop", rules{rule("*", "-", "pods")}, `{APIGroups:[""], Resources:["pods"], Verbs:["*"]}`},
		"verbs":           {"verbs on one resource are joined", ann, "", rules{rule("get", "-", "pods"), rule("list", "-", "pods")}, `{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}`},
		"names":           {"but not those on several objects", ann, "shop", rules{rule("get", "-", "secrets", "c", "b", "a"), rule("list", "-", "secrets", "b")}, `{APIGroups:[""], Resources:["secrets"], ResourceNames:["b"], Verbs:["get" "list"]}` + "\n" + `{APIGroups:[""], Resources:["secrets"], ResourceNames:["c"], Verbs:["get"]}`},
		"urls":            {"URLs have no groups; lines are sorted and said once", ann, "", rules{urls("get", "/b,/a"), urls("get", "/b")}, `{NonResourceURLs:["/a"], Verbs:["get"]}` + "\n" + `{NonResourceURLs:["/b"], Verbs:["get"]}`},
		"wide":            {"what is missing is split", ann, "", rules{rule("get", "-,apps", "jobs")}, `{APIGroups:[""], Resources:["jobs"], Verbs:["get"]}` + "\n" + `{APIGroups:["apps"], Resources:["jobs"], Verbs:["get"]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, got := "", ""
			if tc.want != "" {
				want = fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n", tc.user.Name, tc.user.Groups) + tc.want
			}
			if err := rbac.New(reader).Confirm(t.Context(), tc.user, tc.namespace, tc.wanted); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want, +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestRulesOf(t *testing.T) {
	t.Parallel()
	a := rbac.New(&store{clusterRoles: []*rbacv1.ClusterRole{clusterRole("pods", rule("get", "-", "pods"))}})
	got, err := a.RulesOf(&rbacv1.RoleRef{Kind: "ClusterRole", Name: "pods"}, "shop")
	if diff := cmp.Diff([]rbacv1.PolicyRule{rule("get", "-", "pods")}, got); diff != "" || err != nil {
		t.Errorf("rules of a role that is bound: error %v (-want, +got):\n%s", err, diff)
	}
	if _, err := a.RulesOf(&rbacv1.RoleRef{Kind: "Role", Name: "pods"}, "shop"); err == nil {
		t.Error("rules of a role that is missing: got no error")
	}
}
