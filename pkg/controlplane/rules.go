package controlplane

import (
	"context"
	"errors"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
)

// rules lists the rules of those of the plane's authorizers that can list them.
func (p *Plane) rules() authorizer.RuleResolver {
	all := resolvers{privileged{}}
	for _, a := range p.plan.authorizers {
		all = append(all, a.value)
	}
	return all
}

// resolvers are authorizers, of which some can list their rules.
type resolvers []any

// RulesFor implements authorizer.RuleResolver.
func (r resolvers) RulesFor(ctx context.Context, u user.Info, namespace string) (
	[]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error,
) {
	var resources []authorizer.ResourceRuleInfo
	var others []authorizer.NonResourceRuleInfo
	var errs []error
	incomplete := false
	for _, a := range r {
		resolver, ok := a.(authorizer.RuleResolver)
		if !ok {
			incomplete = true
			continue
		}
		rr, nr, partial, err := resolver.RulesFor(ctx, u, namespace)
		resources, others = append(resources, rr...), append(others, nr...)
		incomplete = incomplete || partial
		errs = append(errs, err)
	}
	return resources, others, incomplete, errors.Join(errs...)
}

// privileged lists the rule that group system:masters may do everything.
type privileged struct{}

// RulesFor implements authorizer.RuleResolver.
func (privileged) RulesFor(ctx context.Context, u user.Info, _ string) (
	[]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error,
) {
	asked := authorizer.AttributesRecord{User: u}
	decision, _, err := authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup).Authorize(ctx, asked)
	if decision != authorizer.DecisionAllow {
		return nil, nil, false, err
	}
	all := []string{"*"}
	return []authorizer.ResourceRuleInfo{&authorizer.DefaultResourceRuleInfo{Verbs: all, APIGroups: all, Resources: all}},
		[]authorizer.NonResourceRuleInfo{&authorizer.DefaultNonResourceRuleInfo{Verbs: all, NonResourceURLs: all}}, false, nil
}
