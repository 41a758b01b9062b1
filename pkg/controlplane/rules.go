package controlplane

import (
	"context"
	"slices"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	unionauthz "k8s.io/apiserver/pkg/authorization/union"
)

// rules lists the rules of those of the plane's authorizers that can list them.
func (p *Plane) rules() authorizer.RuleResolver {
	all := []authorizer.RuleResolver{privileged{}}
	for _, a := range p.plan.authorizers {
		resolver, ok := a.value.(authorizer.RuleResolver)
		if !ok {
			resolver = unlistable{}
		}
		all = append(all, resolver)
	}
	return unionauthz.NewRuleResolvers(all...)
}

// unlistable stands for an authorizer that cannot list its rules.
type unlistable struct{}

// RulesFor implements authorizer.RuleResolver.
func (unlistable) RulesFor(context.Context, user.Info, string) (
	[]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error,
) {
	return nil, nil, true, nil
}

// privileged lists the rule that group system:masters may do everything.
type privileged struct{}

// RulesFor implements authorizer.RuleResolver.
func (privileged) RulesFor(ctx context.Context, u user.Info, namespace string) (
	[]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error,
) {
	if !slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
		return nil, nil, false, nil
	}
	return authorizerfactory.NewAlwaysAllowAuthorizer().RulesFor(ctx, u, namespace)
}
