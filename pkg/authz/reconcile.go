package authz

import (
	"context"
	"fmt"
	"maps"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typed "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/component-helpers/auth/rbac/reconciliation"

	"github.com/sailplane-dev/sailplane/pkg/internal/rbac"
)

// reconcileRole adds to a default role what it lacks, or creates it.
func (r *roles) reconcileRole(ctx context.Context, client typed.RbacV1Interface, wanted *rbacv1.ClusterRole) error {
	if stored, err := r.cache.ClusterRole(wanted.Name); err == nil && sameRole(stored, wanted) {
		return nil
	}
	least := wanted
	if wanted.AggregationRule != nil {
		// A stored aggregated role has the rules of the existing roles, which may differ.
		least = wanted.DeepCopy()
		least.Rules = nil
	}
	options := reconciliation.ReconcileRoleOptions{
		Role:    reconciliation.ClusterRoleRuleOwner{ClusterRole: least},
		Client:  roleClient{ctx, wanted, client.ClusterRoles(), cachedFirst(ctx, r.cache.ClusterRole, client.ClusterRoles().Get)},
		Confirm: true,
	}
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		_, err := options.Run()
		return err
	})
	if err != nil {
		return fmt.Errorf("cluster role %q: %w", wanted.Name, err)
	}
	return nil
}

// sameRole tells whether the role is as wanted, as at most starts: that costs
// less than comparing what the rules cover.
func sameRole(stored, wanted *rbacv1.ClusterRole) bool {
	return rbac.SameRules(stored.Rules, wanted.Rules) &&
		maps.Equal(stored.Labels, wanted.Labels) && maps.Equal(stored.Annotations, wanted.Annotations) &&
		equality.Semantic.DeepEqual(stored.AggregationRule, wanted.AggregationRule)
}

// reconcileBinding adds to a default binding the subjects it lacks, or creates it.
func (r *roles) reconcileBinding(ctx context.Context, client typed.RbacV1Interface, wanted *rbacv1.ClusterRoleBinding) error {
	bindings := client.ClusterRoleBindings()
	options := reconciliation.ReconcileRoleBindingOptions{
		RoleBinding: reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: wanted},
		Client:      bindingClient{ctx, bindings, cachedFirst(ctx, r.cache.clusterRoleBindings.Get, bindings.Get)},
		Confirm:     true,
	}
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		_, err := options.Run()
		return err
	})
	if err != nil {
		return fmt.Errorf("cluster role binding %q: %w", wanted.Name, err)
	}
	return nil
}

// cachedFirst reads from a cache, which may lag, the first time, and then from
// the API.
func cachedFirst[T any](
	ctx context.Context, cached func(string) (*T, error), stored func(context.Context, string, metav1.GetOptions) (*T, error),
) func(string) (*T, error) {
	first := true
	return func(name string) (*T, error) {
		if first {
			first = false
			return cached(name)
		}
		return stored(ctx, name, metav1.GetOptions{})
	}
}

// roleClient reads and writes one role. Unlike those of the published client, its
// requests end with the context.
type roleClient struct {
	ctx    context.Context //nolint:containedctx // a client is for one role, and its methods take no context
	whole  *rbacv1.ClusterRole
	client typed.ClusterRoleInterface
	get    func(name string) (*rbacv1.ClusterRole, error)
}

// Get implements reconciliation.RuleOwnerModifier.
func (c roleClient) Get(_, name string) (reconciliation.RuleOwner, error) {
	role, err := c.get(name)
	return reconciliation.ClusterRoleRuleOwner{ClusterRole: role}, err
}

// Create writes the role with the rules that it will aggregate.
func (c roleClient) Create(reconciliation.RuleOwner) (reconciliation.RuleOwner, error) {
	role, err := c.client.Create(c.ctx, c.whole, metav1.CreateOptions{})
	return reconciliation.ClusterRoleRuleOwner{ClusterRole: role}, err
}

// Update implements reconciliation.RuleOwnerModifier.
func (c roleClient) Update(o reconciliation.RuleOwner) (reconciliation.RuleOwner, error) {
	role, err := c.client.Update(c.ctx, o.(reconciliation.ClusterRoleRuleOwner).ClusterRole, metav1.UpdateOptions{})
	return reconciliation.ClusterRoleRuleOwner{ClusterRole: role}, err
}

// bindingClient reads and writes one binding, as roleClient does a role.
type bindingClient struct {
	ctx    context.Context //nolint:containedctx // a client is for one binding, and its methods take no context
	client typed.ClusterRoleBindingInterface
	get    func(name string) (*rbacv1.ClusterRoleBinding, error)
}

// Get implements reconciliation.RoleBindingModifier.
func (c bindingClient) Get(_, name string) (reconciliation.RoleBinding, error) {
	b, err := c.get(name)
	return reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: b}, err
}

// Create implements reconciliation.RoleBindingModifier.
func (c bindingClient) Create(o reconciliation.RoleBinding) (reconciliation.RoleBinding, error) {
	b, err := c.client.Create(c.ctx, o.(reconciliation.ClusterRoleBindingAdapter).ClusterRoleBinding, metav1.CreateOptions{})
	return reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: b}, err
}

// Update implements reconciliation.RoleBindingModifier.
func (c bindingClient) Update(o reconciliation.RoleBinding) (reconciliation.RoleBinding, error) {
	b, err := c.client.Update(c.ctx, o.(reconciliation.ClusterRoleBindingAdapter).ClusterRoleBinding, metav1.UpdateOptions{})
	return reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: b}, err
}

// Delete implements reconciliation.RoleBindingModifier.
func (c bindingClient) Delete(_, name string, uid types.UID) error {
	return c.client.Delete(c.ctx, name, *metav1.NewPreconditionDeleteOptions(string(uid)))
}
