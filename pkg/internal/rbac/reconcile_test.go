package rbac_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sailplane-dev/sailplane/pkg/internal/rbac"
)

func auto(value string) map[string]string {
	return map[string]string{rbacv1.AutoUpdateAnnotationKey: value}
}

func defaults() map[string]string {
	return map[string]string{rbac.BootstrapLabel: rbac.BootstrapDefaults}
}

func TestReconcileClusterRole(t *testing.T) {
	t.Parallel()
	type role = rbacv1.ClusterRole
	build := func(change func(*role)) *role {
		r := clusterRole("r", rule("get,list", "-", "pods"))
		r.Labels, r.Annotations = defaults(), auto("true")
		if change != nil {
			change(r)
		}
		return r
	}
	choose := func(labels ...string) *rbacv1.AggregationRule {
		a := &rbacv1.AggregationRule{}
		for _, label := range labels {
			a.ClusterRoleSelectors = append(a.ClusterRoleSelectors, metav1.LabelSelector{MatchLabels: map[string]string{label: "true"}})
		}
		return a
	}
	for name, tc := range map[string]struct {
		reason         string
		stored, wanted *role
		want           *role
		operation      rbac.Operation
	}{
		"none": {"what is not there is created", nil, build(nil), build(nil), rbac.OperationCreate},
		"same": {"what is there is left", build(nil), build(nil), build(nil), rbac.OperationNone},
		"more": {"what somebody added stays", build(func(r *role) { r.Rules = append(r.Rules, rule("*", "*", "*")) }), build(nil), build(func(r *role) { r.Rules = append(r.Rules, rule("*", "*", "*")) }), rbac.OperationNone},
		"less": {"what is missing is added", build(func(r *role) { r.Rules[0].Verbs = list("get,watch") }), build(nil), build(func(r *role) {
			r.Rules[0].Verbs = list("get,watch")
			r.Rules = append(r.Rules, rule("list", "-", "pods"))
		}), rbac.OperationUpdate},
		"protected": {"unless somebody wants to keep theirs", build(func(r *role) { r.Rules = nil; r.Annotations = auto("false") }), build(nil), build(func(r *role) { r.Rules = nil; r.Annotations = auto("false") }), rbac.OperationNone},
		"metadata":  {"labels and annotations are added", build(func(r *role) { r.Labels = nil; r.Annotations = map[string]string{"a": "b"} }), build(nil), build(func(r *role) { r.Annotations["a"] = "b" }), rbac.OperationUpdate},
		"relabelled": {
			"but not written over",
			build(func(r *role) { r.Labels[rbac.BootstrapLabel] = "mine" }),
			build(nil),
			build(func(r *role) { r.Labels[rbac.BootstrapLabel] = "mine" }), rbac.OperationNone,
		},
		"aggregation missing": {
			"selectors are added",
			build(nil),
			build(func(r *role) { r.AggregationRule = choose("x") }),
			build(func(r *role) { r.AggregationRule = choose("x") }), rbac.OperationUpdate,
		},
		"aggregation more": {
			"to those that are there",
			build(func(r *role) { r.AggregationRule = choose("y", "x") }),
			build(func(r *role) { r.AggregationRule = choose("x", "z") }),
			build(func(r *role) { r.AggregationRule = choose("y", "x", "z") }), rbac.OperationUpdate,
		},
		"aggregation same": {
			"and not twice; rules that were aggregated stay",
			build(func(r *role) { r.AggregationRule = choose("x") }),
			build(func(r *role) { r.Rules, r.AggregationRule = nil, choose("x") }),
			build(func(r *role) { r.AggregationRule = choose("x") }), rbac.OperationNone,
		},
		"aggregation unwanted": {
			"an aggregation would overwrite the rules",
			build(func(r *role) { r.AggregationRule = choose("x") }),
			build(nil),
			build(nil), rbac.OperationUpdate,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stored, wanted := tc.stored.DeepCopy(), tc.wanted.DeepCopy()
			got, operation := rbac.ReconcileClusterRole(tc.stored, tc.wanted)
			if operation != tc.operation {
				t.Errorf("%s: got operation %s, want %s", tc.reason, operation, tc.operation)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want, +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff([]*role{stored, wanted}, []*role{tc.stored, tc.wanted}); diff != "" {
				t.Errorf("an argument was written to (-before, +after):\n%s", diff)
			}
			if tc.stored != nil && operation == rbac.OperationUpdate {
				if _, again := rbac.ReconcileClusterRole(got, tc.wanted); again != rbac.OperationNone {
					t.Errorf("once written, nothing is left to do: got operation %s", again)
				}
			}
		})
	}
}

func TestReconcileRole(t *testing.T) {
	t.Parallel()
	role := func(annotation string, rules ...rbacv1.PolicyRule) *rbacv1.Role {
		return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "r", Annotations: auto(annotation)}, Rules: rules}
	}
	wanted := role("true", rule("get", "-", "pods"))
	for name, tc := range map[string]struct {
		reason       string
		stored, want *rbacv1.Role
		operation    rbac.Operation
	}{
		"none":      {"what is not there is created", nil, wanted, rbac.OperationCreate},
		"same":      {"what is there is left", wanted, wanted, rbac.OperationNone},
		"less":      {"what is missing is added", role("true", rule("list", "-", "pods")), role("true", rule("list", "-", "pods"), rule("get", "-", "pods")), rbac.OperationUpdate},
		"protected": {"unless somebody wants to keep theirs", role("false"), role("false"), rbac.OperationNone},
	} {
		got, operation := rbac.ReconcileRole(tc.stored, wanted)
		if diff := cmp.Diff(tc.want, got); diff != "" || operation != tc.operation {
			t.Errorf("%s: %s: got operation %s, want %s (-want, +got):\n%s", name, tc.reason, operation, tc.operation, diff)
		}
	}
}

func TestReconcileBindings(t *testing.T) {
	t.Parallel()
	b := func(annotation, role string, subjects ...rbacv1.Subject) *rbacv1.ClusterRoleBinding {
		b := clusterBinding("b", role, subjects...)
		b.Labels, b.Annotations = defaults(), auto(annotation)
		return b
	}
	bare := b("true", "r", rbacv1.Subject{Kind: "Group", Name: "devs"})
	bare.RoleRef.APIGroup = ""
	wanted := b("true", "r", aGroup("devs"), anAccount("shop", "bot"))
	for name, tc := range map[string]struct {
		reason               string
		stored, wanted, want *rbacv1.ClusterRoleBinding
		operation            rbac.Operation
	}{
		"none":            {"what is not there is created", nil, wanted, wanted, rbac.OperationCreate},
		"same":            {"what is there is left", wanted, wanted, wanted, rbac.OperationNone},
		"more":            {"whom somebody added stays", b("true", "r", anAccount("shop", "bot"), aUser("ann"), aGroup("devs")), wanted, b("true", "r", anAccount("shop", "bot"), aUser("ann"), aGroup("devs")), rbac.OperationNone},
		"less":            {"who is missing is added", b("true", "r", aUser("ann")), wanted, b("true", "r", aUser("ann"), aGroup("devs"), anAccount("shop", "bot")), rbac.OperationUpdate},
		"unlabelled":      {"labels are added", clusterBinding("b", "r", wanted.Subjects...), wanted, wanted, rbac.OperationUpdate},
		"other role":      {"a reference is immutable", b("true", "other", aUser("ann")), wanted, wanted, rbac.OperationRecreate},
		"protected":       {"somebody wants to keep theirs", b("false", "r"), wanted, b("false", "r"), rbac.OperationNone},
		"protected other": {"even of another role", b("false", "other"), wanted, b("false", "other"), rbac.OperationNone},
		"undefaulted":     {"groups the API fills in are no difference", b("true", "r", aGroup("devs")), bare, b("true", "r", aGroup("devs")), rbac.OperationNone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, operation := rbac.ReconcileClusterRoleBinding(tc.stored, tc.wanted)
			if diff := cmp.Diff(tc.want, got); diff != "" || operation != tc.operation {
				t.Errorf("%s: got operation %s, want %s (-want, +got):\n%s", tc.reason, operation, tc.operation, diff)
			}
			local, operation := rbac.ReconcileRoleBinding(localized(tc.stored), localized(tc.wanted))
			if diff := cmp.Diff(localized(tc.want), local); diff != "" || operation != tc.operation {
				t.Errorf("of a namespace: %s: got operation %s, want %s (-want, +got):\n%s", tc.reason, operation, tc.operation, diff)
			}
		})
	}
}

// localized is the same binding in a namespace.
func localized(b *rbacv1.ClusterRoleBinding) *rbacv1.RoleBinding {
	if b == nil {
		return nil
	}
	b = b.DeepCopy()
	b.Namespace = "shop"
	return &rbacv1.RoleBinding{ObjectMeta: b.ObjectMeta, RoleRef: b.RoleRef, Subjects: b.Subjects}
}
