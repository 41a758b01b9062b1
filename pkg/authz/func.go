package authz

import (
	"context"
	"errors"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// Attributes is what a request wants to do, and who asks.
type Attributes = authorizer.Attributes

// Decision is what an authorizer says of a request: Allow, Deny or NoOpinion.
type Decision = authorizer.Decision

const (
	// Allow lets the request through; no later part is asked.
	Allow = authorizer.DecisionAllow
	// Deny refuses the request; no later part is asked.
	Deny = authorizer.DecisionDeny
	// NoOpinion leaves the decision to the later parts. A request that no part
	// has an opinion about is refused.
	NoOpinion = authorizer.DecisionNoOpinion
)

// Func makes a function an authorizer. The name is for errors and metrics, and
// no other part may have it. The function is called for every request that no
// earlier part decided, by many goroutines at once, and returns a decision and
// the reason, which the caller gets when the request is refused. Group
// system:masters, which the server's own client is in, may do everything and is
// never asked about.
//
// The caller gets an error as an internal one, unless a part allows the request:
// return NoOpinion with it to ask the later parts, and Deny not to.
//
// Attributes have the selectors of a request in GetFieldSelector and
// GetLabelSelector, which only narrow what is asked for. When these return an
// error, decide as if there were no selector.
//
// SelfSubjectRulesReviews do not know what the function allows, and say so.
func Func(name string, f func(ctx context.Context, a Attributes) (Decision, string, error)) controlplane.Part {
	return function{name: name, decide: f}
}

type function struct {
	name   string
	decide authorizer.AuthorizerFunc
}

// PartName implements the name errors use.
func (f function) PartName() string { return "authz.Func " + f.name }

// Install declares the authorizer.
func (f function) Install(p *controlplane.Plan) error {
	switch {
	case f.name == "":
		return errors.New("the name is empty")
	case f.decide == nil:
		return errors.New("the function is nil")
	}
	p.Authorize(f.name, countDecisions("Func", f.name, f.decide))
	return nil
}
