package core

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

const (
	terminating    = corev1.ResourceQuotaScopeTerminating
	notTerminating = corev1.ResourceQuotaScopeNotTerminating
	bestEffort     = corev1.ResourceQuotaScopeBestEffort
	priorityClass  = corev1.ResourceQuotaScopePriorityClass
)

func selector(rs ...corev1.ScopedResourceSelectorRequirement) *corev1.ScopeSelector {
	return &corev1.ScopeSelector{MatchExpressions: rs}
}

func TestValidateResourceQuota(t *testing.T) {
	t.Parallel()
	const qualified = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric " +
		"character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
	cases := map[string]struct {
		reason string
		spec   corev1.ResourceQuotaSpec
		want   []string
	}{
		"Empty": {reason: "a quota may limit nothing"},
		"Valid": {
			reason: "compute, storage, counts, huge pages, extended resources and object counts of any group",
			spec: corev1.ResourceQuotaSpec{Hard: list("cpu", "100m", "limits.memory", "1Gi", "requests.storage", "1Gi", "pods", "10",
				"services.nodeports", "0", "hugepages-2Mi", "4Mi", "requests.hugepages-2Mi", "4Mi", "requests.nvidia.com/gpu", "1",
				"count/deployments.apps", "3", "gold.storageclass.storage.k8s.io/requests.storage", "1.5Gi")},
		},
		"Names": {
			reason: "names without a domain are Kubernetes' own; errors come in their order",
			spec:   corev1.ResourceQuotaSpec{Hard: list("bananas", "1", "storage", "1Gi", "a b/c d", "1")},
			want: []string{
				`spec.hard[a b/c d]: Invalid value: "a b/c d": prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric ` +
					`characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for ` +
					`validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
				`spec.hard[a b/c d]: Invalid value: "a b/c d": ` + qualified,
				`spec.hard[bananas]: Invalid value: "bananas": must be a standard resource type or fully qualified`,
				`spec.hard[bananas]: Invalid value: "bananas": must be a standard resource for quota`,
				`spec.hard[storage]: Invalid value: "storage": must be a standard resource for quota`,
			},
		},
		"Quantities": {
			reason: "nothing is negative, and objects are not divided",
			spec:   corev1.ResourceQuotaSpec{Hard: list("cpu", "-1", "pods", "1500m", "example.org/x", "0.5")},
			want: []string{
				`spec.hard[cpu]: Invalid value: "-1": must be greater than or equal to 0`,
				`spec.hard[example.org/x]: Invalid value: "500m": must be an integer`,
				`spec.hard[pods]: Invalid value: "1500m": must be an integer`,
			},
		},
		"Scopes": {
			reason: "pods are in scopes",
			spec:   corev1.ResourceQuotaSpec{Hard: list("pods", "1", "cpu", "1"), Scopes: []corev1.ResourceQuotaScope{terminating, priorityClass}},
		},
		"UnsupportedScope": {
			reason: "a scope is one of seven",
			spec:   corev1.ResourceQuotaSpec{Scopes: []corev1.ResourceQuotaScope{"Mine"}},
			want:   []string{`spec.scopes: Invalid value: ["Mine"]: unsupported scope`},
		},
		"ScopeOfOthers": {
			reason: "secrets never terminate, and pods of best effort have no cpu",
			spec:   corev1.ResourceQuotaSpec{Hard: list("cpu", "1", "secrets", "1"), Scopes: []corev1.ResourceQuotaScope{bestEffort}},
			want: []string{
				`spec.scopes: Invalid value: ["BestEffort"]: unsupported scope applied to resource`,
				`spec.scopes: Invalid value: ["BestEffort"]: unsupported scope applied to resource`,
			},
		},
		"Conflict": {
			reason: "no pod is in both",
			spec:   corev1.ResourceQuotaSpec{Scopes: []corev1.ResourceQuotaScope{terminating, notTerminating}},
			want:   []string{`spec.scopes: Invalid value: ["Terminating","NotTerminating"]: conflicting scopes`},
		},
		"Selector": {
			reason: "each operator with the values it takes",
			spec: corev1.ResourceQuotaSpec{Hard: list("pods", "1"), ScopeSelector: selector(
				corev1.ScopedResourceSelectorRequirement{ScopeName: priorityClass, Operator: corev1.ScopeSelectorOpIn, Values: []string{"high"}},
				corev1.ScopedResourceSelectorRequirement{ScopeName: terminating, Operator: corev1.ScopeSelectorOpExists},
			)},
		},
		"BadSelector": {
			reason: "every mistake is named",
			spec: corev1.ResourceQuotaSpec{ScopeSelector: selector(
				corev1.ScopedResourceSelectorRequirement{ScopeName: priorityClass, Operator: corev1.ScopeSelectorOpIn},
				corev1.ScopedResourceSelectorRequirement{ScopeName: "Mine", Operator: corev1.ScopeSelectorOpExists, Values: []string{"a"}},
				corev1.ScopedResourceSelectorRequirement{ScopeName: terminating, Operator: "Near"},
			)},
			want: []string{
				"spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
				`spec.scopeSelector.matchExpressions.scopeName: Invalid value: "Mine": unsupported scope`,
				"spec.scopeSelector.matchExpressions.values: Invalid value: [\"a\"]: must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
				`spec.scopeSelector.matchExpressions.operator: Invalid value: "Near": must be 'Exists' when scope is any of ` +
					`ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ` +
					`ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity`,
				`spec.scopeSelector.matchExpressions.operator: Invalid value: "Near": not a valid selector operator`,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, texts(validateResourceQuota(t.Context(), &corev1.ResourceQuota{Spec: tc.spec}))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestQuotaScopesAreImmutable(t *testing.T) {
	t.Parallel()
	quota := func(scopes ...corev1.ResourceQuotaScope) *corev1.ResourceQuota {
		return &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Scopes: scopes}}
	}
	cases := map[string]struct {
		reason string
		q, old *corev1.ResourceQuota
		want   []string
	}{
		"Order":  {"scopes are a set", quota(terminating, priorityClass), quota(priorityClass, terminating), nil},
		"Change": {"what counted so far would be wrong", quota(bestEffort), quota(), []string{`spec.scopes: Invalid value: ["BestEffort"]: field is immutable`}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, texts(validateResourceQuotaUpdate(t.Context(), tc.q, tc.old))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestQuotaRow(t *testing.T) {
	t.Parallel()
	got := quotaRow(&corev1.ResourceQuota{Status: corev1.ResourceQuotaStatus{
		Hard: list("pods", "10", "limits.cpu", "2", "limits.memory", "1Gi", "cpu", "1"),
		Used: list("pods", "3", "limits.cpu", "500m"),
	}})
	if diff := cmp.Diff([]any{"cpu: 0/1, pods: 3/10", "limits.cpu: 500m/2, limits.memory: 0/1Gi"}, got); diff != "" {
		t.Errorf("limits have a column of their own (-want +got):\n%s", diff)
	}
}
