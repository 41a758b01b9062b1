package rbac

import (
	"context"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/internal/check"
)

// The kinds a binding may refer to.
const (
	roleKind        = "Role"
	clusterRoleKind = "ClusterRole"
)

func validateRole(_ context.Context, r *rbacv1.Role) field.ErrorList {
	return validateRules(r.Rules, true)
}

func validateClusterRole(_ context.Context, r *rbacv1.ClusterRole) field.ErrorList {
	return append(validateRules(r.Rules, false), validateAggregation(r.AggregationRule)...)
}

func validateRules(rules []rbacv1.PolicyRule, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	for i, rule := range rules {
		errs = append(errs, validateRule(rule, namespaced, field.NewPath("rules").Index(i))...)
	}
	return errs
}

func validateRule(rule rbacv1.PolicyRule, namespaced bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(rule.Verbs) == 0 {
		errs = append(errs, field.Required(path.Child("verbs"), "verbs must contain at least one value"))
	}
	if len(rule.NonResourceURLs) > 0 {
		return append(errs, validateURLs(rule, namespaced, path.Child("nonResourceURLs"))...)
	}
	if len(rule.APIGroups) == 0 {
		errs = append(errs, field.Required(path.Child("apiGroups"), "resource rules must supply at least one api group"))
	}
	if len(rule.Resources) == 0 {
		errs = append(errs, field.Required(path.Child("resources"), "resource rules must supply at least one resource"))
	}
	return errs
}

func validateURLs(rule rbacv1.PolicyRule, namespaced bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if namespaced {
		errs = append(errs, field.Invalid(path, rule.NonResourceURLs, "namespaced rules cannot apply to non-resource URLs"))
	}
	if len(rule.APIGroups) > 0 || len(rule.Resources) > 0 || len(rule.ResourceNames) > 0 {
		errs = append(errs, field.Invalid(path, rule.NonResourceURLs,
			"rules cannot apply to both regular resources and non-resource URLs"))
	}
	return errs
}

func validateAggregation(rule *rbacv1.AggregationRule) field.ErrorList {
	if rule == nil {
		return nil
	}
	path := field.NewPath("aggregationRule", "clusterRoleSelectors")
	if len(rule.ClusterRoleSelectors) == 0 {
		return field.ErrorList{field.Required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil")}
	}
	var errs field.ErrorList
	for i := range rule.ClusterRoleSelectors {
		selector, at := &rule.ClusterRoleSelectors[i], path.Index(i)
		errs = append(errs, check.Selector(at, selector)...)
		if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
			errs = append(errs, field.Invalid(at, nil, "invalid label selector."))
		}
	}
	return errs
}

func validateRoleBinding(_ context.Context, b *rbacv1.RoleBinding) field.ErrorList {
	return append(validateRoleRef(b.RoleRef, roleKind, clusterRoleKind), validateSubjects(b.Subjects, true)...)
}

func validateClusterRoleBinding(_ context.Context, b *rbacv1.ClusterRoleBinding) field.ErrorList {
	return append(validateRoleRef(b.RoleRef, clusterRoleKind), validateSubjects(b.Subjects, false)...)
}

func validateRoleRef(ref rbacv1.RoleRef, kinds ...string) field.ErrorList {
	path := field.NewPath("roleRef")
	var errs field.ErrorList
	if ref.APIGroup != rbacv1.GroupName {
		errs = append(errs, field.NotSupported(path.Child("apiGroup"), ref.APIGroup, []string{rbacv1.GroupName}))
	}
	if !slices.Contains(kinds, ref.Kind) {
		errs = append(errs, field.NotSupported(path.Child("kind"), ref.Kind, kinds))
	}
	if ref.Name == "" {
		return append(errs, field.Required(path.Child("name"), ""))
	}
	return append(errs, check.Messages(path.Child("name"), ref.Name, pathSegment(ref.Name, false))...)
}

// validateSameRole refuses another role: the permission to change subjects is
// not the permission to bind a role.
func validateSameRole(ref, old rbacv1.RoleRef) field.ErrorList {
	if ref == old {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("roleRef"), ref, "cannot change roleRef")}
}

func validateSubjects(subjects []rbacv1.Subject, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	for i, s := range subjects {
		at := field.NewPath("subjects").Index(i)
		if s.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		}
		switch s.Kind {
		case rbacv1.ServiceAccountKind:
			errs = append(errs, validateAccount(s, namespaced, at)...)
		case rbacv1.UserKind, rbacv1.GroupKind:
			if s.APIGroup != rbacv1.GroupName {
				errs = append(errs, field.NotSupported(at.Child("apiGroup"), s.APIGroup, []string{rbacv1.GroupName}))
			}
		default:
			errs = append(errs, field.NotSupported(at.Child("kind"), s.Kind,
				[]string{rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind}))
		}
	}
	return errs
}

// validateAccount checks a service account. Without a namespace it is in that of the binding.
func validateAccount(s rbacv1.Subject, namespaced bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.Name != "" {
		errs = append(errs, check.Messages(path.Child("name"), s.Name, apivalidation.ValidateServiceAccountName(s.Name, false))...)
	}
	if s.APIGroup != "" {
		errs = append(errs, field.NotSupported(path.Child("apiGroup"), s.APIGroup, []string{""}))
	}
	if !namespaced && s.Namespace == "" {
		errs = append(errs, field.Required(path.Child("namespace"), ""))
	}
	return errs
}
