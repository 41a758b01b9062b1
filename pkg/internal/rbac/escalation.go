package rbac

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Uncovered returns which of the rules a user does not hold in a namespace,
// "" being the whole plane: nobody may write a role with such rules, or bind
// one, without the verb escalate or bind. With an error some rules of the user
// could not be read, and what is returned may be more than what is missing;
// there is none when nothing is missing.
func (a *Authorizer) Uncovered(
	_ context.Context, u user.Info, namespace string, rules []rbacv1.PolicyRule,
) ([]rbacv1.PolicyRule, error) {
	held, err := a.rules(u, namespace)
	missing := Covers(held, rules)
	if len(missing) == 0 {
		return nil, nil // what could not be read was not needed
	}
	return missing, err
}

// EscalationError says which rules a user would give away without holding
// them, in the words of Kubernetes, and what could not be read of theirs, as
// Uncovered returns both. It is nil when no rule is missing.
func EscalationError(u user.Info, missing []rbacv1.PolicyRule, unread ...error) error {
	if len(missing) == 0 {
		return nil
	}
	var lines []string
	for _, rule := range compact(missing) {
		lines = append(lines, describe(&rule))
	}
	slices.Sort(lines)
	text := fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s",
		u.GetName(), u.GetGroups(), strings.Join(slices.Compact(lines), "\n"))
	unread = slices.DeleteFunc(slices.Clone(unread), func(err error) bool { return err == nil })
	if len(unread) > 0 {
		text += fmt.Sprintf("; resolution errors: %v", unread)
	}
	return errors.New(text)
}

// compact joins rules that differ in their verbs only and have one resource
// and at most one name: such are what Covers returns.
func compact(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	type target struct {
		group, resource, name string
		named                 bool
	}
	var (
		compacted []rbacv1.PolicyRule
		position  = map[target]int{}
	)
	for i := range rules {
		rule := &rules[i]
		if len(rule.APIGroups) != 1 || len(rule.Resources) != 1 || len(rule.ResourceNames) > 1 || len(rule.NonResourceURLs) > 0 {
			compacted = append(compacted, *rule)
			continue
		}
		key := target{group: rule.APIGroups[0], resource: rule.Resources[0]}
		if len(rule.ResourceNames) == 1 {
			key.name, key.named = rule.ResourceNames[0], true
		}
		at, known := position[key]
		if !known {
			position[key] = len(compacted)
			compacted = append(compacted, *rule.DeepCopy())
			continue
		}
		compacted[at].Verbs = append(compacted[at].Verbs, rule.Verbs...)
	}
	return compacted
}

// describe prints a rule on one line, without the fields it leaves out.
func describe(rule *rbacv1.PolicyRule) string {
	var parts []string
	for _, field := range []struct {
		name   string
		values []string
	}{
		{"APIGroups", rule.APIGroups},
		{"Resources", rule.Resources},
		{"NonResourceURLs", rule.NonResourceURLs},
		{"ResourceNames", rule.ResourceNames},
		{"Verbs", rule.Verbs},
	} {
		if len(field.values) > 0 {
			parts = append(parts, fmt.Sprintf("%s:%q", field.name, field.values))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
