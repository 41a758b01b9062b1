package authz

import (
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/metrics"
)

// countedWithRules is an authorizer that can list what it allows, or says that it cannot.
type countedWithRules struct {
	authorizer.Authorizer
	authorizer.RuleResolver
}

// countDecisions is the authorizer with kube-apiserver's metric of its decisions,
// apiserver_authorization_decisions_total. It lists its rules if a does.
func countDecisions(kind, name string, a authorizer.UnconditionalAuthorizer) authorizer.Authorizer {
	measured := metrics.InstrumentedAuthorizer(kind, name, authorizer.AuthorizerFunc(a.Authorize))
	if rules, ok := a.(authorizer.RuleResolver); ok {
		return countedWithRules{Authorizer: measured, RuleResolver: rules}
	}
	return measured
}
