package rbac

import (
	"context"
	"fmt"
	"strconv"

	rbacv1 "k8s.io/api/rbac/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Authorizer decides requests by roles and bindings. It keeps nothing: each
// decision reads from the Reader. It is safe for concurrent use if its Reader is.
type Authorizer struct {
	reader Reader
}

var (
	_ authorizer.UnconditionalAuthorizer = (*Authorizer)(nil)
	_ authorizer.RuleResolver            = (*Authorizer)(nil)
)

// New returns an authorizer with a reader.
func New(reader Reader) *Authorizer { return &Authorizer{reader: reader} }

// Authorize allows a request when a rule that its user holds allows it, with the
// binding as the reason. Else it has no opinion, and the reason is what could not
// be read, if anything, such as the role of a binding that does not exist. It never
// returns an error: a missing role must not make a request fail that another
// authorizer allows.
func (a *Authorizer) Authorize(_ context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	u := attributes.GetUser()
	if u == nil {
		return authorizer.DecisionNoOpinion, "", nil
	}
	var (
		asked   = requestOf(attributes)
		allowed source
		errs    []error
	)
	a.visit(whoIs(u), attributes.GetNamespace(), func(from source, rules []rbacv1.PolicyRule, err error) bool {
		if err != nil {
			errs = append(errs, err)
			return true
		}
		if asked.allowedBy(rules) {
			allowed = from
			return false
		}
		return true
	})
	if allowed.binding != nil {
		return authorizer.DecisionAllow, allowed.reason(), nil
	}
	if len(errs) > 0 {
		return authorizer.DecisionNoOpinion, fmt.Sprintf("RBAC: %v", utilerrors.NewAggregate(errs)), nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// RulesFor returns all rules that a user holds in a namespace: those of
// cluster-wide bindings, then those of the namespace. With an error they are right
// but may be incomplete. The flag for incomplete lists is never set, because this
// authorizer knows nothing but rules.
func (a *Authorizer) RulesFor(
	_ context.Context, u user.Info, namespace string,
) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	var (
		resources []authorizer.ResourceRuleInfo
		urls      []authorizer.NonResourceRuleInfo
	)
	rules, err := a.rules(u, namespace)
	for i := range rules {
		rule := &rules[i]
		if len(rule.Resources) > 0 {
			resources = append(resources, &authorizer.DefaultResourceRuleInfo{
				Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames,
			})
		}
		if len(rule.NonResourceURLs) > 0 {
			urls = append(urls, &authorizer.DefaultNonResourceRuleInfo{Verbs: rule.Verbs, NonResourceURLs: rule.NonResourceURLs})
		}
	}
	return resources, urls, false, err
}

// rules are the rules that a user holds, as far as they can be read.
func (a *Authorizer) rules(u user.Info, namespace string) ([]rbacv1.PolicyRule, error) {
	var (
		held []rbacv1.PolicyRule
		errs []error
	)
	a.visit(whoIs(u), namespace, func(_ source, rules []rbacv1.PolicyRule, err error) bool {
		if err != nil {
			errs = append(errs, err)
		}
		held = append(held, rules...)
		return true
	})
	return held, utilerrors.NewAggregate(errs)
}

// source is the origin of rules: a binding, and the subject in it that applied. The
// namespace of a cluster-wide one is "".
type source struct {
	binding   *rbacv1.RoleBinding
	namespace string
	subject   *rbacv1.Subject
}

// reason has the words of Kubernetes, even with names before their namespaces:
// people search audit logs for them.
func (s source) reason() string {
	kind, name := "ClusterRoleBinding", s.binding.Name
	if s.namespace != "" {
		kind, name = "RoleBinding", name+"/"+s.namespace
	}
	subject := s.subject.Name
	if s.subject.Kind == rbacv1.ServiceAccountKind {
		subject += "/" + accountNamespace(s.subject, s.namespace)
	}
	text := make([]byte, 0, 256)
	for _, part := range [...][3]string{
		{"RBAC: allowed by ", kind, name},
		{" of ", s.binding.RoleRef.Kind, s.binding.RoleRef.Name},
		{" to ", s.subject.Kind, subject},
	} {
		text = append(append(append(text, part[0]...), part[1]...), ' ')
		text = strconv.AppendQuote(text, part[2])
	}
	return string(text)
}
