package authz

import (
	"context"
	"sync/atomic"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// current is an authorizer that is known when a plane starts and may be
// replaced while it runs.
type current struct {
	known atomic.Pointer[countedWithRules]
}

var (
	_ authorizer.UnconditionalAuthorizer = &current{}
	_ authorizer.RuleResolver            = &current{}
)

// startingError says that rules are not known yet. Until then, a refusal does not
// mean that something is absent.
type startingError struct{}

func (startingError) Error() string { return "authorization is being set up" }

// Authorize implements authorizer.UnconditionalAuthorizer. It denies everything
// before the authorizer is known, which might deny what a later part allows.
func (c *current) Authorize(ctx context.Context, a Attributes) (Decision, string, error) {
	known := c.known.Load()
	if known == nil {
		return Deny, startingError{}.Error(), nil
	}
	return known.Authorize(ctx, a)
}

// RulesFor implements authorizer.RuleResolver.
func (c *current) RulesFor(ctx context.Context, u user.Info, namespace string) (
	[]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error,
) {
	known := c.known.Load()
	if known == nil {
		return nil, nil, true, startingError{}
	}
	return known.RulesFor(ctx, u, namespace)
}
