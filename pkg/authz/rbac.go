package authz

import (
	"context"
	"sync/atomic"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	builtinrbac "github.com/sailplane-dev/sailplane/pkg/builtin/rbac"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/rbac"
)

// RBAC allows what roles and their bindings allow, as Kubernetes does:
// https://kubernetes.io/docs/reference/access-authn-authz/rbac/. It serves them: the
// parts of pkg/builtin/rbac.
//
// At each start it makes sure that the default ClusterRoles and their bindings
// exist with at least their default rules: cluster-admin, admin, edit, view,
// system:discovery, system:basic-user, system:public-info-viewer,
// system:monitoring, system:auth-delegator and others. One with the annotation
// rbac.authorization.kubernetes.io/autoupdate "false" is left as it is. The rules
// of aggregated ClusterRoles are kept up to date, by one of the servers that
// share a storage.
type RBAC struct{}

// PartName implements the name errors use.
func (RBAC) PartName() string { return "authz.RBAC" }

// Install declares the authorizer, the resources and informers it reads, and the work
// on the default and the aggregated roles.
func (RBAC) Install(p *controlplane.Plan) error {
	r, err := newRoles(p)
	p.Authorize("rbac", countDecisions(string(typeRBAC), "rbac", r))
	return err
}

// newRoles declares what the authorizer needs. A plane has one.
func newRoles(p *controlplane.Plan) (*roles, error) {
	r := &roles{changed: p.RulesChanged}
	p.Work(controlplane.Work{Name: "clusterrole-aggregation", Start: r.start, Run: r.aggregate, Elected: true})
	return r, p.Include(builtinrbac.All())
}

// roles is the authorizer of one plane.
type roles struct {
	changed func()
	cache   *cached
	// authorizer is nil until the caches are filled.
	authorizer atomic.Pointer[rbac.Authorizer]
}

var (
	_ authorizer.UnconditionalAuthorizer = &roles{}
	_ authorizer.RuleResolver            = &roles{}
)

// start fills the caches, which are kept up to date until the context ends, and
// brings the default roles up to date.
func (r *roles) start(ctx context.Context, plane *controlplane.Plane) error {
	cache, err := newCached(ctx, plane.Informers(), r.changed)
	if err != nil {
		return err
	}
	r.cache = cache
	r.authorizer.Store(rbac.New(cache))
	return r.prepare(ctx, plane)
}

// Authorize implements authorizer.UnconditionalAuthorizer. Before the caches are filled
// nobody is allowed anything.
func (r *roles) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	known := r.authorizer.Load()
	if known == nil {
		return authorizer.DecisionNoOpinion, "RBAC: roles and bindings are being read", nil
	}
	return known.Authorize(ctx, a)
}

// RulesFor implements authorizer.RuleResolver.
func (r *roles) RulesFor(ctx context.Context, u user.Info, namespace string) (
	[]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error,
) {
	known := r.authorizer.Load()
	if known == nil {
		return nil, nil, true, startingError{}
	}
	return known.RulesFor(ctx, u, namespace)
}
