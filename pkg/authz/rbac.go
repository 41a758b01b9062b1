package authz

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/rbac"
)

// RBAC allows what roles and their bindings allow, as Kubernetes does:
// https://kubernetes.io/docs/reference/access-authn-authz/rbac/. It needs
// rbac.All of pkg/builtin/rbac, which serves them.
//
// At each start it sees to it that the default ClusterRoles and their bindings
// are there with at least the rules they come with: cluster-admin, admin, edit,
// view, system:discovery, system:basic-user, system:public-info-viewer,
// system:monitoring, system:auth-delegator and others. One with the annotation
// rbac.authorization.kubernetes.io/autoupdate "false" is left as it is. The
// rules of aggregated ClusterRoles are kept up to date; of several servers that
// share a storage one does that.
type RBAC struct{}

// PartName implements the name errors use.
func (RBAC) PartName() string { return "authz.RBAC" }

// Install declares the authorizer, the informers it reads, and the work on the
// default and the aggregated roles.
func (RBAC) Install(p *controlplane.Plan) error {
	p.Authorize("rbac", counted(string(typeRBAC), "rbac", newRoles(p)))
	return nil
}

// newRoles declares what the authorizer needs. A plane has one.
func newRoles(p *controlplane.Plan) *roles {
	for _, kind := range []string{"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"} {
		p.Need("rbac.All()", rbacv1.SchemeGroupVersion.WithKind(kind))
	}
	r := &roles{known: make(chan struct{}), prepared: make(chan struct{})}
	p.Background("roles and bindings", r.follow)
	p.Prepare("default roles", r.prepare)
	p.Elect("clusterrole-aggregation", r.aggregate)
	return r
}

// roles is the authorizer of one plane.
type roles struct {
	// known is closed when the caches are filled; the rest is set by then.
	known chan struct{}
	// prepared is closed when the default roles are up to date.
	prepared   chan struct{}
	cache      *cached
	authorizer *rbac.Authorizer
}

var (
	_ authorizer.UnconditionalAuthorizer = &roles{}
	_ authorizer.RuleResolver            = &roles{}
)

// follow fills the caches and keeps them up to date.
func (r *roles) follow(ctx context.Context, plane *controlplane.Plane) error {
	cache, err := newCached(ctx, plane.Informers())
	if err != nil || cache == nil {
		return err
	}
	r.cache, r.authorizer = cache, rbac.New(cache)
	close(r.known)
	return nil
}

// await returns when the caches are filled.
func (r *roles) await(ctx context.Context) error {
	select {
	case <-r.known:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("roles and bindings were not read: %w", context.Cause(ctx))
	}
}

func (r *roles) ready() bool {
	select {
	case <-r.known:
		return true
	default:
		return false
	}
}

// Authorize implements authorizer.UnconditionalAuthorizer. Before the caches are filled
// nobody is allowed anything.
func (r *roles) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if !r.ready() {
		return authorizer.DecisionNoOpinion, "RBAC: roles and bindings are being read", nil
	}
	return r.authorizer.Authorize(ctx, a)
}

// RulesFor implements authorizer.RuleResolver.
func (r *roles) RulesFor(ctx context.Context, u user.Info, namespace string) (
	[]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error,
) {
	if !r.ready() {
		return nil, nil, true, startingError{}
	}
	return r.authorizer.RulesFor(ctx, u, namespace)
}
