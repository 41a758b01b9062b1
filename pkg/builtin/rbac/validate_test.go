package rbac

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// list is a []string; nothing for none.
func list(s ...string) []string { return s }

// compare compares errors with their texts.
func compare(t *testing.T, reason string, want []string, errs field.ErrorList) {
	t.Helper()
	var got []string
	for _, err := range errs {
		got = append(got, err.Error())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", reason, diff)
	}
}

func TestValidateRule(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason     string
		rule       rbacv1.PolicyRule
		namespaced bool
		want       []string
	}{
		"resources": {
			reason: "the core group is the empty string",
			rule:   rbacv1.PolicyRule{Verbs: list("get"), APIGroups: list(""), Resources: list("pods"), ResourceNames: list("a")}, namespaced: true,
		},
		"urls": {reason: "cluster roles have them", rule: rbacv1.PolicyRule{Verbs: list("get"), NonResourceURLs: list("/healthz/*")}},
		"empty": {reason: "a rule says what it allows", want: list(
			"rules[0].verbs: Required value: verbs must contain at least one value",
			"rules[0].apiGroups: Required value: resource rules must supply at least one api group",
			"rules[0].resources: Required value: resource rules must supply at least one resource",
		)},
		"namespaced urls": {
			reason: "a URL is in no namespace", rule: rbacv1.PolicyRule{Verbs: list("get"), NonResourceURLs: list("/a")}, namespaced: true,
			want: list(`rules[0].nonResourceURLs: Invalid value: ["/a"]: namespaced rules cannot apply to non-resource URLs`),
		},
		"both": {
			reason: "a rule is for resources or for URLs",
			rule:   rbacv1.PolicyRule{Verbs: list("get"), NonResourceURLs: list("/a"), Resources: list("pods")},
			want:   list(`rules[0].nonResourceURLs: Invalid value: ["/a"]: rules cannot apply to both regular resources and non-resource URLs`),
		},
		"both without verbs": {
			reason: "every mistake is reported", rule: rbacv1.PolicyRule{NonResourceURLs: list("/a"), ResourceNames: list("b")}, namespaced: true,
			want: list(
				"rules[0].verbs: Required value: verbs must contain at least one value",
				`rules[0].nonResourceURLs: Invalid value: ["/a"]: namespaced rules cannot apply to non-resource URLs`,
				`rules[0].nonResourceURLs: Invalid value: ["/a"]: rules cannot apply to both regular resources and non-resource URLs`,
			),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules := []rbacv1.PolicyRule{tc.rule}
			if tc.namespaced {
				compare(t, tc.reason, tc.want, validateRole(t.Context(), &rbacv1.Role{Rules: rules}))
				return
			}
			compare(t, tc.reason, tc.want, validateClusterRole(t.Context(), &rbacv1.ClusterRole{Rules: rules}))
		})
	}
}

func TestValidateAggregation(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		rule   *rbacv1.AggregationRule
		want   []string
	}{
		"none": {reason: "few roles gather others"},
		"good": {reason: "labels choose roles", rule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"a": "b"}}}}},
		"empty": {
			reason: "a rule without selectors gathers nothing", rule: &rbacv1.AggregationRule{},
			want: list("aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil"),
		},
		"bad": {
			reason: "a selector is valid",
			rule:   &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}}}}},
			want: list(
				`aggregationRule.clusterRoleSelectors[0].matchExpressions[0].operator: Invalid value: "Is": not a valid selector operator`,
				`aggregationRule.clusterRoleSelectors[0]: Invalid value: null: invalid label selector.`,
			),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compare(t, tc.reason, tc.want, validateClusterRole(t.Context(), &rbacv1.ClusterRole{AggregationRule: tc.rule}))
		})
	}
}

func TestValidateBinding(t *testing.T) {
	t.Parallel()
	good := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:any"}
	for name, tc := range map[string]struct {
		reason   string
		ref      rbacv1.RoleRef
		subjects []rbacv1.Subject
		// namespaced and cluster are the errors as either kind of binding; no
		// cluster: the same.
		namespaced, cluster []string
	}{
		"good": {reason: "subjects of every kind", ref: good, subjects: []rbacv1.Subject{
			{Kind: "User", APIGroup: rbacv1.GroupName, Name: "any name / at all"},
			{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "system:masters"},
			{Kind: "ServiceAccount", Namespace: "a", Name: "b"},
		}},
		"role": {
			reason: "roles are bound in their namespace", ref: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "a"},
			cluster: list(`roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"`),
		},
		"ref": {
			reason: "a role is bound, of this group", ref: rbacv1.RoleRef{APIGroup: "example.com", Kind: "Apple"},
			namespaced: list(
				`roleRef.apiGroup: Unsupported value: "example.com": supported values: "rbac.authorization.k8s.io"`,
				`roleRef.kind: Unsupported value: "Apple": supported values: "Role", "ClusterRole"`,
				`roleRef.name: Required value`,
			),
			cluster: list(
				`roleRef.apiGroup: Unsupported value: "example.com": supported values: "rbac.authorization.k8s.io"`,
				`roleRef.kind: Unsupported value: "Apple": supported values: "ClusterRole"`,
				`roleRef.name: Required value`,
			),
		},
		"ref name": {
			reason: "it stands in a path", ref: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "a/b"},
			namespaced: list(`roleRef.name: Invalid value: "a/b": may not contain '/'`),
		},
		"account": {
			reason: "an account is in a namespace", ref: good, subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "a"}},
			cluster: list(`subjects[0].namespace: Required value`),
		},
		"account name": {
			reason: "an account has the name of one", ref: good,
			subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "a", Name: "A"}, {Kind: "ServiceAccount", Namespace: "a", APIGroup: rbacv1.GroupName}},
			namespaced: list(
				`subjects[0].name: Invalid value: "A": `+dnsMessage,
				`subjects[1].name: Required value`,
				`subjects[1].apiGroup: Unsupported value: "rbac.authorization.k8s.io": supported values: ""`,
			),
		},
		"subjects": {
			reason: "users and groups have a name and the group, and there is no other kind", ref: good,
			subjects: []rbacv1.Subject{{Kind: "User"}, {Kind: "Group", APIGroup: "a", Name: "b"}, {Kind: "Robot", Name: "c"}},
			namespaced: list(
				`subjects[0].name: Required value`,
				`subjects[0].apiGroup: Unsupported value: "": supported values: "rbac.authorization.k8s.io"`,
				`subjects[1].apiGroup: Unsupported value: "a": supported values: "rbac.authorization.k8s.io"`,
				`subjects[2].kind: Unsupported value: "Robot": supported values: "ServiceAccount", "User", "Group"`,
			),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compare(t, tc.reason, tc.namespaced, validateRoleBinding(t.Context(), &rbacv1.RoleBinding{RoleRef: tc.ref, Subjects: tc.subjects}))
			if tc.cluster == nil {
				tc.cluster = tc.namespaced
			}
			compare(t, tc.reason, tc.cluster, validateClusterRoleBinding(t.Context(), &rbacv1.ClusterRoleBinding{RoleRef: tc.ref, Subjects: tc.subjects}))
		})
	}
}

const dnsMessage = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', " +
	"and must start and end with an alphanumeric character (e.g. 'example.com', " +
	"regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"

func TestFillIn(t *testing.T) {
	t.Parallel()
	ref := rbacv1.RoleRef{Kind: "Role", Name: "a"}
	subjects := []rbacv1.Subject{{Kind: "User"}, {Kind: "Group"}, {Kind: "ServiceAccount"}, {Kind: "Robot"}, {Kind: "User", APIGroup: "kept"}}
	fillIn(&ref, subjects)
	if diff := cmp.Diff(rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "a"}, ref); diff != "" {
		t.Errorf("role (-want +got):\n%s", diff)
	}
	want := []rbacv1.Subject{
		{Kind: "User", APIGroup: rbacv1.GroupName},
		{Kind: "Group", APIGroup: rbacv1.GroupName},
		{Kind: "ServiceAccount"},
		{Kind: "Robot"},
		{Kind: "User", APIGroup: "kept"},
	}
	if diff := cmp.Diff(want, subjects); diff != "" {
		t.Errorf("subjects (-want +got):\n%s", diff)
	}
}

func TestRow(t *testing.T) {
	t.Parallel()
	got := row(rbacv1.RoleRef{Kind: "ClusterRole", Name: "view"}, []rbacv1.Subject{
		{Kind: "User", Name: "ann"},
		{Kind: "Group", Name: "a"},
		{Kind: "User", Name: "bob"},
		{Kind: "ServiceAccount", Namespace: "n", Name: "s"},
		{Kind: "ServiceAccount", Name: "t"},
		{Kind: "Robot", Name: "r"},
	})
	if diff := cmp.Diff([]any{"ClusterRole/view", "ann, bob", "a", "n/s, /t"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
