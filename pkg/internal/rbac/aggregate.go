package rbac

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Aggregate returns the rules of an aggregated ClusterRole: those of all other
// roles that its selectors choose, selector by selector and in the order of the
// roles' names, each rule once. The rules are copies; without any the slice is
// empty, not nil.
func Aggregate(selectors []metav1.LabelSelector, all []*rbacv1.ClusterRole, self string) ([]rbacv1.PolicyRule, error) {
	byName := slices.SortedFunc(slices.Values(all), func(a, b *rbacv1.ClusterRole) int {
		return strings.Compare(a.Name, b.Name)
	})
	rules, known := []rbacv1.PolicyRule{}, map[string]bool{}
	for i := range selectors {
		chosen, err := metav1.LabelSelectorAsSelector(&selectors[i])
		if err != nil {
			return nil, fmt.Errorf("cluster role %q: aggregation rule: cluster role selector %d: %w", self, i, err)
		}
		for _, role := range byName {
			if role.Name == self || !chosen.Matches(labels.Set(role.Labels)) {
				continue
			}
			for j := range role.Rules {
				rule := &role.Rules[j]
				if key := keyOf(rule); !known[key] {
					known[key] = true
					rules = append(rules, *rule.DeepCopy())
				}
			}
		}
	}
	return rules, nil
}

// keyOf is the same for the same rules: they are not compared with each other, because a
// role can have ten thousand.
func keyOf(rule *rbacv1.PolicyRule) string {
	var key []byte
	for _, list := range [][]string{rule.Verbs, rule.APIGroups, rule.Resources, rule.ResourceNames, rule.NonResourceURLs} {
		key = binary.AppendUvarint(key, uint64(len(list)))
		for _, value := range list {
			key = append(binary.AppendUvarint(key, uint64(len(value))), value...)
		}
	}
	return string(key)
}

// SameRules compares rules as written, without reflection: planes in tests compare
// a hundred rules when they start.
func SameRules(a, b []rbacv1.PolicyRule) bool {
	return slices.EqualFunc(a, b, func(a, b rbacv1.PolicyRule) bool { return sameRule(&a, &b) })
}

// sameRule compares rules as written: order counts, nil and empty are the same.
func sameRule(a, b *rbacv1.PolicyRule) bool {
	return slices.Equal(a.Verbs, b.Verbs) &&
		slices.Equal(a.APIGroups, b.APIGroups) &&
		slices.Equal(a.Resources, b.Resources) &&
		slices.Equal(a.ResourceNames, b.ResourceNames) &&
		slices.Equal(a.NonResourceURLs, b.NonResourceURLs)
}
