package authz

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	typed "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/rbac"
	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
)

// prepare brings the default roles up to date, and waits until the authorizer
// knows them.
func (r *roles) prepare(ctx context.Context, plane *controlplane.Plane) error {
	client := plane.Client().RbacV1()
	wanted, bindings := rbac.Defaults()
	if err := aggregateDefaults(wanted); err != nil {
		return err
	}
	var work sync.WaitGroup
	errs := make([]error, len(wanted)+len(bindings))
	for i, role := range wanted {
		work.Go(func() { errs[i] = r.reconcileRole(ctx, client, role) })
	}
	for i, binding := range bindings {
		work.Go(func() { errs[len(wanted)+i] = r.reconcileBinding(ctx, client, binding) })
	}
	work.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return r.awaitDefaults(ctx, client, wanted, bindings)
}

// aggregateDefaults gives aggregated default roles their final rules, so that
// they are written once. They aggregate one another.
func aggregateDefaults(wanted []*rbacv1.ClusterRole) error {
	for changed := true; changed; {
		changed = false
		for _, role := range wanted {
			if role.AggregationRule == nil {
				continue
			}
			rules, err := rbac.Aggregate(role.AggregationRule.ClusterRoleSelectors, wanted, role.Name)
			if err != nil {
				return err
			}
			if !rbac.SameRules(rules, role.Rules) {
				role.Rules, changed = rules, true
			}
		}
	}
	return nil
}

// lookAgain is how often the caches are checked for recent writes, and retryAfter
// the pause after a failed aggregation.
const (
	lookAgain  = time.Millisecond / 2
	retryAfter = time.Second
)

// awaitDefaults returns when the caches have the defaults and the rules of
// aggregated ones.
func (r *roles) awaitDefaults(
	ctx context.Context, client typed.RbacV1Interface, wanted []*rbacv1.ClusterRole, bindings []*rbacv1.ClusterRoleBinding,
) error {
	for {
		missing := ""
		for _, role := range wanted {
			if _, err := r.cache.ClusterRole(role.Name); err != nil {
				missing = role.Name
			}
		}
		for _, b := range bindings {
			if _, err := r.cache.clusterRoleBindings.Get(b.Name); err != nil {
				missing = b.Name
			}
		}
		if missing == "" {
			changed, err := r.aggregateAll(ctx, client)
			if err == nil && !changed {
				return nil
			}
			if err != nil && !apierrors.IsConflict(err) {
				return err
			}
		}
		select {
		case <-time.After(lookAgain):
		case <-ctx.Done():
			return fmt.Errorf("wait for the default roles: %q is missing: %w", missing, context.Cause(ctx))
		}
	}
}

// aggregate keeps the rules of aggregated ClusterRoles up to date.
func (r *roles) aggregate(ctx context.Context, plane *controlplane.Plane) error {
	client := plane.Client().RbacV1()
	wake := make(chan struct{}, 1)
	changed := func() { signal.Wake(wake) }
	registration, err := r.cache.changes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		UpdateFunc: func(_, _ any) { changed() },
		DeleteFunc: func(any) { changed() },
	})
	if err != nil {
		return err
	}
	defer func() { _ = r.cache.changes.RemoveEventHandler(registration) }() // registered above
	for {
		select {
		case <-wake:
		case <-ctx.Done():
			return nil
		}
		if _, err := r.aggregateAll(ctx, client); err != nil && ctx.Err() == nil {
			if !apierrors.IsConflict(err) {
				klog.FromContext(ctx).Error(err, "Failed to update the rules of an aggregated ClusterRole")
			}
			time.AfterFunc(retryAfter, changed)
		}
	}
}

// aggregateAll writes the aggregated roles whose rules are out of date.
func (r *roles) aggregateAll(ctx context.Context, client typed.RbacV1Interface) (changed bool, err error) {
	all, err := r.cache.clusterRoles.List(labels.Everything())
	if err != nil {
		return false, err
	}
	var errs []error
	for _, role := range all {
		if role.AggregationRule == nil {
			continue
		}
		rules, err := rbac.Aggregate(role.AggregationRule.ClusterRoleSelectors, all, role.Name)
		if err != nil {
			errs = append(errs, fmt.Errorf("cluster role %q: %w", role.Name, err))
			continue
		}
		if rbac.SameRules(rules, role.Rules) {
			continue
		}
		changed = true
		role = role.DeepCopy()
		role.Rules = rules
		if _, err := client.ClusterRoles().Update(ctx, role, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("cluster role %q: %w", role.Name, err))
		}
	}
	return changed, errors.Join(errs...)
}
