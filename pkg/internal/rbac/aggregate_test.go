package rbac_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sailplane-dev/sailplane/pkg/internal/rbac"
)

func TestAggregate(t *testing.T) {
	t.Parallel()
	with := func(label string, role *rbacv1.ClusterRole) *rbacv1.ClusterRole {
		role.Labels = map[string]string{label: "true"}
		return role
	}
	pods, jobs, nodes := rule("get", "-", "pods"), rule("get", "batch", "jobs"), rule("get", "-", "nodes")
	all := []*rbacv1.ClusterRole{
		with("view", clusterRole("c", jobs, pods)),
		with("view", clusterRole("view", nodes)),
		with("view", clusterRole("a", pods, pods)),
		with("edit", clusterRole("b", nodes)),
	}
	label := func(label string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchLabels: map[string]string{label: "true"}}
	}
	for name, tc := range map[string]struct {
		reason    string
		selectors []metav1.LabelSelector
		want      []rbacv1.PolicyRule
		err       bool
	}{
		"no selector": {"nothing is chosen", nil, []rbacv1.PolicyRule{}, false},
		"nobody":      {"nobody has the label", []metav1.LabelSelector{label("admin")}, []rbacv1.PolicyRule{}, false},
		"by name":     {"roles in order of their names, each rule once, and never the role itself", []metav1.LabelSelector{label("view")}, []rbacv1.PolicyRule{pods, jobs}, false},
		"selectors":   {"selectors come before names", []metav1.LabelSelector{label("edit"), label("view")}, []rbacv1.PolicyRule{nodes, pods, jobs}, false},
		"everything":  {"an empty selector chooses all", []metav1.LabelSelector{{}}, []rbacv1.PolicyRule{pods, nodes, jobs}, false},
		"broken":      {"a selector must be one", []metav1.LabelSelector{{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := rbac.Aggregate(tc.selectors, all, "view")
			if (err != nil) != tc.err {
				t.Errorf("%s: got error %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want, +got):\n%s", tc.reason, diff)
			}
		})
	}
	if all[0].Name != "c" {
		t.Error("the roles of a cache were sorted in place")
	}
}
