package admissionregistration

import (
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/internal/check"
)

// operations are what rules can match.
func operations() []admissionv1.OperationType {
	return []admissionv1.OperationType{
		admissionv1.OperationAll, admissionv1.Connect, admissionv1.Create, admissionv1.Delete, admissionv1.Update,
	}
}

// mutable are the operations with an object that can be changed.
func mutable() []admissionv1.OperationType {
	return []admissionv1.OperationType{
		admissionv1.OperationAll, admissionv1.Connect, admissionv1.Create, admissionv1.Update,
	}
}

func defaultMatch(m *admissionv1.MatchResources) {
	if m == nil {
		return
	}
	setDefault(&m.MatchPolicy, admissionv1.Equivalent)
	setDefault(&m.NamespaceSelector, metav1.LabelSelector{})
	setDefault(&m.ObjectSelector, metav1.LabelSelector{})
	for _, rules := range [][]admissionv1.NamedRuleWithOperations{m.ResourceRules, m.ExcludeResourceRules} {
		for i := range rules {
			setDefault(&rules[i].Scope, admissionv1.AllScopes)
		}
	}
}

// validateConstraints checks the match of a policy, which must have rules: they
// say which types its expressions are about.
func validateConstraints(m *admissionv1.MatchResources, can []admissionv1.OperationType, at *field.Path) field.ErrorList {
	if m == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := validateMatch(m, can, at)
	if len(m.ResourceRules) == 0 {
		errs = append(errs, field.Required(at.Child("resourceRules"), ""))
	}
	return errs
}

func validateMatch(m *admissionv1.MatchResources, can []admissionv1.OperationType, at *field.Path) field.ErrorList {
	if m == nil {
		return nil
	}
	errs := check.OptionalOneOf(at.Child("matchPolicy"), m.MatchPolicy, admissionv1.Equivalent, admissionv1.Exact)
	errs = append(errs, check.Selector(at.Child("namespaceSelector"), m.NamespaceSelector)...)
	errs = append(errs, check.Selector(at.Child("objectSelector"), m.ObjectSelector)...)
	for i, rule := range m.ResourceRules {
		errs = append(errs, validateNamedRule(rule, can, at.Child("resourceRules").Index(i))...)
	}
	for i, rule := range m.ExcludeResourceRules {
		errs = append(errs, validateNamedRule(rule, can, at.Child("excludeResourceRules").Index(i))...)
	}
	return errs
}

func validateNamedRule(r admissionv1.NamedRuleWithOperations, can []admissionv1.OperationType, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := make(map[string]bool, len(r.ResourceNames))
	for i, name := range r.ResourceNames {
		errs = append(errs, check.Messages(at.Child("resourceNames").Index(i), name, content.IsPathSegmentName(name))...)
		if seen[name] {
			errs = append(errs, field.Duplicate(at.Child("resourceNames").Index(i), name))
		}
		seen[name] = true
	}
	return append(errs, validateRule(r.RuleWithOperations, can, at)...)
}

func validateRule(r admissionv1.RuleWithOperations, can []admissionv1.OperationType, at *field.Path) field.ErrorList {
	errs := alone(at.Child("operations"), r.Operations, "operations")
	for i, o := range r.Operations {
		errs = append(errs, check.OptionalOneOf(at.Child("operations").Index(i), &o, can...)...)
	}
	errs = append(errs, alone(at.Child("apiGroups"), r.APIGroups, "API groups")...)
	errs = append(errs, alone(at.Child("apiVersions"), r.APIVersions, "API versions")...)
	for i, v := range r.APIVersions {
		if v == "" {
			errs = append(errs, field.Required(at.Child("apiVersions").Index(i), ""))
		}
	}
	errs = append(errs, validateResources(r.Resources, at.Child("resources"))...)
	return append(errs, check.OptionalOneOf(at.Child("scope"), r.Scope,
		admissionv1.AllScopes, admissionv1.ClusterScope, admissionv1.NamespacedScope)...)
}

// alone checks that a list is not empty, and that "*" is alone in it.
func alone[T ~string](at *field.Path, list []T, what string) field.ErrorList {
	switch {
	case len(list) == 0:
		return field.ErrorList{field.Required(at, "")}
	case len(list) > 1 && slices.Contains(list, "*"):
		return field.ErrorList{field.Invalid(at, list, "if '*' is present, must not specify other "+what)}
	}
	return nil
}

// validateResources refuses a resource that another one of the list covers.
func validateResources(resources []string, at *field.Path) field.ErrorList {
	if len(resources) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	plain, seen := false, make(map[string]bool, len(resources))
	for i, r := range resources {
		name, sub, split := strings.Cut(r, "/")
		switch {
		case r == "":
			errs = append(errs, field.Required(at.Index(i), ""))
		case !split:
			plain = plain || r != "*"
		case seen[name+"/*"]:
			errs = append(errs, field.Invalid(at.Index(i), r, "if '"+name+"/*' is present, must not specify "+r))
		case seen["*/"+sub]:
			errs = append(errs, field.Invalid(at.Index(i), r, "if '*/"+sub+"' is present, must not specify "+r))
		}
		seen[r] = true
	}
	if len(resources) > 1 && slices.Contains(resources, "*/*") {
		errs = append(errs, field.Invalid(at, resources, "if '*/*' is present, must not specify other resources"))
	}
	if plain && slices.Contains(resources, "*") {
		errs = append(errs, field.Invalid(at, resources, "if '*' is present, must not specify other resources without subresources"))
	}
	return errs
}
