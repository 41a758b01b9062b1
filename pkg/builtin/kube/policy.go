package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/internal/check"
	noderules "github.com/sailplane-dev/sailplane/pkg/internal/rules/node"
)

func policy() apiGroup {
	return apiGroup{policyv1.SchemeGroupVersion, policyDefinitions, nil, nil, []func() *apis.Definition{podDisruptionBudgets}}
}

func podDisruptionBudgets() *apis.Definition {
	return apis.Resource[policyv1.PodDisruptionBudget, policyv1.PodDisruptionBudgetList]("poddisruptionbudgets",
		apis.ShortNames("pdb"), apis.StatusAndMetadata(),
		apis.Validate(validateBudget),
		table(func(b *policyv1.PodDisruptionBudget) []any {
			return []any{limit(b.Spec.MinAvailable), limit(b.Spec.MaxUnavailable), b.Status.DisruptionsAllowed}
		}, "Min Available", "Max Unavailable", "Allowed Disruptions#"),
	)
}

func limit(v *intstr.IntOrString) string {
	if v == nil {
		return "N/A"
	}
	return v.String()
}

func validateBudget(_ context.Context, b *policyv1.PodDisruptionBudget) field.ErrorList {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	if b.Spec.MinAvailable != nil && b.Spec.MaxUnavailable != nil {
		errs = append(errs, field.Invalid(spec, b.Spec, "minAvailable and maxUnavailable cannot be both set"))
	}
	errs = append(errs, checkIntOrPercent(b.Spec.MinAvailable, spec.Child("minAvailable"))...)
	errs = append(errs, checkIntOrPercent(b.Spec.MaxUnavailable, spec.Child("maxUnavailable"))...)
	errs = append(errs, optionalNotNegative(field.NewPath("status"), map[string]*int32{
		"disruptionsAllowed": &b.Status.DisruptionsAllowed, "currentHealthy": &b.Status.CurrentHealthy,
		"desiredHealthy": &b.Status.DesiredHealthy, "expectedPods": &b.Status.ExpectedPods,
	})...)
	if p := b.Spec.UnhealthyPodEvictionPolicy; p != nil {
		errs = append(errs, check.OneOf(spec.Child("unhealthyPodEvictionPolicy"), *p, policyv1.AlwaysAllow, policyv1.IfHealthyBudget)...)
	}
	return append(errs, check.Selector(spec.Child("selector"), b.Spec.Selector)...)
}

func scheduling() apiGroup {
	return apiGroup{schedulingv1.SchemeGroupVersion, schedulingDefinitions, nil, nil, []func() *apis.Definition{priorityClasses}}
}

func priorityClasses() *apis.Definition {
	return apis.Resource[schedulingv1.PriorityClass, schedulingv1.PriorityClassList]("priorityclasses",
		apis.ClusterScoped(), apis.ShortNames("pc"),
		apis.Default(func(c *schedulingv1.PriorityClass) { set(&c.PreemptionPolicy, corev1.PreemptLowerPriority) }),
		apis.Validate(validatePriorityClass),
		apis.ValidateUpdate(func(_ context.Context, c, old *schedulingv1.PriorityClass) field.ErrorList {
			var errs field.ErrorList
			if c.Value != old.Value {
				errs = append(errs, field.Forbidden(field.NewPath("value"), "may not be changed in an update."))
			}
			return append(errs, immutable(field.NewPath("preemptionPolicy"), c.PreemptionPolicy, old.PreemptionPolicy)...)
		}),
		table(func(c *schedulingv1.PriorityClass) []any {
			return []any{int64(c.Value), boolean(&c.GlobalDefault, ""), string(value(c.PreemptionPolicy))}
		}, "Value#", "Global-Default", "PreemptionPolicy"),
		ageAt(4, 3),
	)
}

// highestPriority is the limit for classes other than those of the system.
const highestPriority = 1000000000

func validatePriorityClass(_ context.Context, c *schedulingv1.PriorityClass) field.ErrorList {
	errs := check.OneOf(field.NewPath("preemptionPolicy"), value(c.PreemptionPolicy), corev1.PreemptLowerPriority, corev1.PreemptNever)
	system := c.Name == "system-cluster-critical" || c.Name == "system-node-critical"
	if !system && c.Value > highestPriority {
		errs = append(errs, field.Forbidden(field.NewPath("value"),
			"maximum allowed value of a user defined priority is 1000000000"))
	}
	return errs
}

func node() apiGroup {
	return apiGroup{nodev1.SchemeGroupVersion, nodeDefinitions, noderules.RegisterValidations, nil, []func() *apis.Definition{
		runtimeClasses,
	}}
}

func runtimeClasses() *apis.Definition {
	return apis.Resource[nodev1.RuntimeClass, nodev1.RuntimeClassList]("runtimeclasses",
		apis.ClusterScoped(), apis.NoGeneration(),
		constant("handler", func(c *nodev1.RuntimeClass) any { return c.Handler }),
		table(func(c *nodev1.RuntimeClass) []any { return []any{c.Handler} }, "Handler"),
	)
}
