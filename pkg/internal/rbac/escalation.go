package rbac

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/klog/v2"
)

// longestText is how many bytes an error has at most of what is missing, and of what
// could not be read.
const longestText = 16 << 10

// Confirm returns an error, in the words of Kubernetes, that names the rules which
// a user does not hold in a namespace ("": the whole plane): nobody may write a
// role with such rules, or bind one, without the verb escalate or bind. It also
// says which of the user's own rules could not be read, unless nothing is missing.
// Rules with more combinations than can be compared are an error too.
func (a *Authorizer) Confirm(ctx context.Context, u user.Info, namespace string, rules []rbacv1.PolicyRule) error {
	held, err := a.rules(u, namespace)
	c := newComparison(held)
	if !c.compare(rules) {
		return fmt.Errorf("the rules have too many combinations of API groups, resources, verbs and names to compare them "+
			"with what user %q holds: split them over several roles, or leave out values", u.GetName())
	}
	if len(c.missing) == 0 {
		return nil // what could not be read was not needed
	}
	text := fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s",
		u.GetName(), u.GetGroups(), shorten(strings.Join(describe(c.missing), "\n"), longestText))
	if c.more {
		text += "\nand more"
	}
	if err != nil {
		klog.FromContext(ctx).V(1).Info("Not all roles of the user could be read", "user", u.GetName(), "err", err)
		text += "; resolution errors: " + shorten(fmt.Sprint([]error{err}), longestText)
	}
	return errors.New(text)
}

// describe prints rules as they are when split, one per line, but joins the verbs
// on one resource or object.
func describe(all []missing) []string {
	var lines []string
	verbs := map[string][]string{}
	for i := range all {
		rule := &all[i].rule
		if len(rule.NonResourceURLs) > 0 {
			lines = append(lines, fmt.Sprintf("{NonResourceURLs:%q, Verbs:%q}", rule.NonResourceURLs, rule.Verbs))
			continue
		}
		about := fmt.Sprintf("{APIGroups:%q, Resources:%q", rule.APIGroups, rule.Resources)
		if len(rule.ResourceNames) > 0 {
			about += fmt.Sprintf(", ResourceNames:%q", rule.ResourceNames)
		}
		verbs[about] = append(verbs[about], rule.Verbs...)
	}
	for about, all := range verbs {
		lines = append(lines, fmt.Sprintf("%s, Verbs:%q}", about, all))
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}
