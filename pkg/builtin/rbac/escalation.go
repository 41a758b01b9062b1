package rbac

import (
	"context"
	"errors"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/internal/check"
	held "github.com/sailplane-dev/sailplane/pkg/internal/rbac"
)

// guard is an admission plugin for one resource: it keeps users from granting what they do not
// hold. Kubernetes asks before the object is validated, in the storage of the resource
// (https://github.com/kubernetes/kubernetes/tree/v1.37.1/pkg/registry/rbac/clusterrole/policybased);
// a validating plugin asks later, and sees the object as it will be stored.
type guard struct {
	*admission.Handler
	resource   string
	authorizer authorizer.Authorizer
	client     rbacclient.RbacV1Interface
}

var (
	_ admission.ValidationInterface          = &guard{}
	_ admission.InitializationValidator      = &guard{}
	_ initializer.WantsAuthorizer            = &guard{}
	_ initializer.WantsExternalKubeClientSet = &guard{}
)

func newGuard(resource string) *guard {
	return &guard{Handler: admission.NewHandler(admission.Create, admission.Update), resource: resource}
}

func (g *guard) SetAuthorizer(a authorizer.Authorizer) { g.authorizer = a }

func (g *guard) SetExternalKubeClientSet(c kubernetes.Interface) { g.client = c.RbacV1() }

func (g *guard) ValidateInitialization() error {
	if g.authorizer == nil || g.client == nil {
		return errors.New("it needs an authorizer and a client")
	}
	return nil
}

func (g *guard) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != rbacv1.Resource(g.resource) || a.GetSubresource() != "" ||
		check.OnlyCollected(a.GetObject(), a.GetOldObject()) {
		return nil
	}
	who := a.GetUserInfo()
	if who == nil {
		return admission.NewForbidden(a, errors.New("no user on context"))
	}
	if slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup) {
		return nil
	}
	switch o := a.GetObject().(type) {
	case *rbacv1.Role:
		return g.checkRole(ctx, a, o.Rules, false)
	case *rbacv1.ClusterRole:
		old, _ := a.GetOldObject().(*rbacv1.ClusterRole)
		return g.checkRole(ctx, a, o.Rules, aggregates(o) || aggregates(old))
	case *rbacv1.RoleBinding:
		return g.checkBinding(ctx, a, o.RoleRef)
	case *rbacv1.ClusterRoleBinding:
		return g.checkBinding(ctx, a, o.RoleRef)
	}
	return admission.NewForbidden(a, fmt.Errorf("unexpected type %T", a.GetObject()))
}

// checkRole wants the user to have the permission to escalate, or the rules. Changes
// beside the rules count too: by its labels a role is aggregated into others.
func (g *guard) checkRole(ctx context.Context, a admission.Attributes, rules []rbacv1.PolicyRule, aggregated bool) error {
	if g.mayEscalate(ctx, a) {
		return nil
	}
	if err := g.confirm(ctx, a, rules); err != nil {
		return admission.NewForbidden(a, err)
	}
	if aggregated && g.confirm(ctx, a, everything()) != nil {
		return admission.NewForbidden(a, errors.New("must have cluster-admin privileges to use the aggregationRule"))
	}
	return nil
}

// checkBinding wants the user to have the permission to bind the role, or its rules.
func (g *guard) checkBinding(ctx context.Context, a admission.Attributes, ref rbacv1.RoleRef) error {
	if g.mayBind(ctx, a, ref) {
		return nil
	}
	// Not from a cache, which lags: the binding grants the current rules of the role.
	rules, err := held.New(newReader(ctx, g.client, latest)).RulesOf(&ref, a.GetNamespace())
	if err != nil {
		return err // as it is: the role is not found
	}
	if err := g.confirm(ctx, a, rules); err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

// confirm returns an error with the rules that the user lacks.
func (g *guard) confirm(ctx context.Context, a admission.Attributes, rules []rbacv1.PolicyRule) error {
	if len(rules) == 0 {
		return nil
	}
	return held.New(newReader(ctx, g.client, cached)).Confirm(ctx, a.GetUserInfo(), a.GetNamespace(), rules)
}

// mayEscalate asks about the role that the request names: a permission for one
// name does not cover a create, whose path has none.
func (g *guard) mayEscalate(ctx context.Context, a admission.Attributes) bool {
	info, ok := request.RequestInfoFrom(ctx)
	if !ok || !info.IsResourceRequest || info.APIGroup != rbacv1.GroupName || info.Resource != g.resource {
		return false
	}
	return g.allowed(ctx, &authorizer.AttributesRecord{
		User: a.GetUserInfo(), Verb: "escalate", ResourceRequest: true, Namespace: a.GetNamespace(),
		APIGroup: rbacv1.GroupName, APIVersion: "*", Resource: g.resource, Name: info.Name,
	})
}

// mayBind asks in the namespace of the binding, for cluster roles too: that is
// where the role will apply.
func (g *guard) mayBind(ctx context.Context, a admission.Attributes, ref rbacv1.RoleRef) bool {
	record := &authorizer.AttributesRecord{
		User: a.GetUserInfo(), Verb: "bind", ResourceRequest: true, Namespace: a.GetNamespace(),
		APIGroup: ref.APIGroup, APIVersion: "*", Resource: roles, Name: ref.Name,
	}
	if ref.Kind == clusterRoleKind {
		record.Resource = clusterRoles
	}
	return g.allowed(ctx, record)
}

func (g *guard) allowed(ctx context.Context, record *authorizer.AttributesRecord) bool {
	decision, reason, err := g.authorizer.Authorize(ctx, record)
	if err != nil {
		klog.FromContext(ctx).V(3).Info("Authorization check failed", "verb", record.Verb, "reason", reason, "err", err)
	}
	return decision == authorizer.DecisionAllow
}

// aggregates tells whether a role aggregates the rules of others.
func aggregates(r *rbacv1.ClusterRole) bool {
	return r != nil && r.AggregationRule != nil && len(r.AggregationRule.ClusterRoleSelectors) > 0
}

// everything is what an aggregation rule may grant.
func everything() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{Verbs: []string{rbacv1.VerbAll}, APIGroups: []string{rbacv1.APIGroupAll}, Resources: []string{rbacv1.ResourceAll}},
		{Verbs: []string{rbacv1.VerbAll}, NonResourceURLs: []string{rbacv1.NonResourceAll}},
	}
}
