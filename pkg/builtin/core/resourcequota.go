package core

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// ResourceQuotas is the part that serves resourcequotas (v1) with their status
// sub-resource. It stores them and enforces nothing: that takes an admission
// plugin and a controller that counts. kubectl get and kubectl describe quota
// show the status, which that controller writes; until then both are empty.
type ResourceQuotas struct{}

// Install adds resourcequotas to the core group.
func (ResourceQuotas) Install(p *controlplane.Plan) error { return shared().Serve(p, resourceQuotas()) }

func resourceQuotas() *apis.Definition {
	return apis.Resource[corev1.ResourceQuota, corev1.ResourceQuotaList]("resourcequotas",
		apis.StatusAndMetadata(),
		apis.ShortNames("quota"),
		apis.NoGeneration(),
		apis.Default(func(q *corev1.ResourceQuota) {
			for _, list := range []corev1.ResourceList{q.Spec.Hard, q.Status.Hard, q.Status.Used} {
				roundQuantities(list)
			}
		}),
		apis.Validate(validateResourceQuota),
		apis.ValidateUpdate(validateResourceQuotaUpdate),
		apis.Columns(quotaRow,
			metav1.TableColumnDefinition{
				Name: "Request", Type: "string",
				Description: "Request represents a minimum amount of cpu/memory that a container may consume.",
			},
			metav1.TableColumnDefinition{
				Name: "Limit", Type: "string",
				Description: "Limits control the maximum amount of cpu/memory that a container may use " +
					"independent of contention on the node.",
			},
		),
	)
}

// quotaRow shows used and hard of each resource; limits have a column of their own.
func quotaRow(q *corev1.ResourceQuota) []any {
	var requests, limits []string
	for _, name := range names(q.Status.Hard) {
		used, hard := q.Status.Used[name], q.Status.Hard[name]
		text := fmt.Sprintf("%s: %s/%s", name, used.String(), hard.String())
		if strings.HasPrefix(string(name), "limits.") {
			limits = append(limits, text)
		} else {
			requests = append(requests, text)
		}
	}
	return []any{strings.Join(requests, ", "), strings.Join(limits, ", ")}
}

func validateResourceQuota(_ context.Context, q *corev1.ResourceQuota) field.ErrorList {
	spec, status := field.NewPath("spec"), field.NewPath("status")
	errs := validateMetaFinalizers(&q.ObjectMeta)
	errs = append(errs, validateQuotaQuantities(q.Spec.Hard, spec.Child("hard"))...)
	errs = append(errs, validateQuotaScopes(&q.Spec, spec.Child("scopes"))...)
	if q.Spec.ScopeSelector != nil {
		errs = append(errs, validateScopeSelector(&q.Spec, spec.Child("scopeSelector", "matchExpressions"))...)
	}
	errs = append(errs, validateQuotaQuantities(q.Status.Hard, status.Child("hard"))...)
	return append(errs, validateQuotaQuantities(q.Status.Used, status.Child("used"))...)
}

// validateResourceQuotaUpdate compares scopes as sets: their order may change.
func validateResourceQuotaUpdate(_ context.Context, q, old *corev1.ResourceQuota) field.ErrorList {
	if sets.New(q.Spec.Scopes...).Equal(sets.New(old.Spec.Scopes...)) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("spec", "scopes"), q.Spec.Scopes, apivalidation.FieldImmutableErrorMsg)}
}

func validateQuotaScopes(spec *corev1.ResourceQuotaSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, scope := range spec.Scopes {
		others, known := outOfScope(scope, spec.Hard)
		if !known {
			errs = append(errs, field.Invalid(path, spec.Scopes, "unsupported scope"))
		}
		for range others {
			errs = append(errs, field.Invalid(path, spec.Scopes, "unsupported scope applied to resource"))
		}
	}
	return append(errs, conflictingScopes(spec.Scopes, spec.Scopes, path)...)
}

func validateScopeSelector(spec *corev1.ResourceQuotaSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	var scopes []corev1.ResourceQuotaScope
	for _, r := range spec.ScopeSelector.MatchExpressions {
		scopes = append(scopes, r.ScopeName)
		others, known := outOfScope(r.ScopeName, spec.Hard)
		if !known {
			errs = append(errs, field.Invalid(path.Child("scopeName"), r.ScopeName, "unsupported scope"))
		}
		for range others {
			errs = append(errs, field.Invalid(path, spec.ScopeSelector, "unsupported scope applied to resource"))
		}
		errs = append(errs, validateScopeOperator(r, path)...)
	}
	return append(errs, conflictingScopes(scopes, spec.Scopes, path)...)
}

func validateScopeOperator(r corev1.ScopedResourceSelectorRequirement, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch r.ScopeName {
	case corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort,
		corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating,
		corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		if r.Operator != corev1.ScopeSelectorOpExists {
			errs = append(errs, field.Invalid(path.Child("operator"), r.Operator,
				"must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "+
					"ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"))
		}
	}
	switch r.Operator {
	case corev1.ScopeSelectorOpIn, corev1.ScopeSelectorOpNotIn:
		if len(r.Values) == 0 {
			errs = append(errs, field.Required(path.Child("values"),
				"must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"))
		}
	case corev1.ScopeSelectorOpExists, corev1.ScopeSelectorOpDoesNotExist:
		if len(r.Values) != 0 {
			errs = append(errs, field.Invalid(path.Child("values"), r.Values,
				"must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"))
		}
	default:
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator, "not a valid selector operator"))
	}
	return errs
}

// conflictingScopes refuses scopes that no object can be in together. Its
// errors show spec.scopes, for the scope selector too, as in Kubernetes.
func conflictingScopes(scopes, shown []corev1.ResourceQuotaScope, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, pair := range [][2]corev1.ResourceQuotaScope{
		{corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort},
		{corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating},
	} {
		if slices.Contains(scopes, pair[0]) && slices.Contains(scopes, pair[1]) {
			errs = append(errs, field.Invalid(path, shown, "conflicting scopes"))
		}
	}
	return errs
}

// outOfScope returns the resources that objects in the scope do not use, and
// whether there is such a scope.
func outOfScope(scope corev1.ResourceQuotaScope, hard corev1.ResourceList) (others []corev1.ResourceName, known bool) {
	var in []corev1.ResourceName
	switch scope {
	case corev1.ResourceQuotaScopeBestEffort:
		in = []corev1.ResourceName{corev1.ResourcePods}
	case corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating, corev1.ResourceQuotaScopeNotBestEffort,
		corev1.ResourceQuotaScopePriorityClass, corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		in = []corev1.ResourceName{
			corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceLimitsCPU,
			corev1.ResourceLimitsMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
		}
	case corev1.ResourceQuotaScopeVolumeAttributesClass:
		in = []corev1.ResourceName{corev1.ResourcePersistentVolumeClaims, corev1.ResourceRequestsStorage}
	default:
		return nil, false
	}
	return slices.DeleteFunc(names(hard), func(name corev1.ResourceName) bool {
		return !isQuotaResource(name) || slices.Contains(in, name)
	}), true
}
