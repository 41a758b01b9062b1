package admissionregistration

import (
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/sailplane-dev/sailplane/pkg/internal/check"
)

func validateValidatingBinding(b, _ *admissionv1.ValidatingAdmissionPolicyBinding) field.ErrorList {
	at := field.NewPath("spec")
	errs := validateBinding(b.Spec.PolicyName, b.Spec.ParamRef, at)
	errs = append(errs, validateMatch(b.Spec.MatchResources, operations(), at.Child("matchResources"))...)
	actions, at := b.Spec.ValidationActions, at.Child("validationActions")
	for i, a := range actions {
		errs = append(errs, check.OptionalOneOf(at.Index(i), &a, admissionv1.Audit, admissionv1.Deny, admissionv1.Warn)...)
		if slices.Contains(actions[:i], a) {
			errs = append(errs, field.Duplicate(at.Index(i), a))
		}
	}
	if slices.Contains(actions, admissionv1.Deny) && slices.Contains(actions, admissionv1.Warn) {
		errs = append(errs, field.Invalid(at, actions, "must not contain both Deny and Warn "+
			"(repeating the same validation failure information in the API response and headers serves no purpose)"))
	}
	if len(actions) == 0 {
		errs = append(errs, field.Required(at, "at least one validation action is required"))
	}
	return errs
}

func validateMutatingBinding(b, _ *admissionv1.MutatingAdmissionPolicyBinding) field.ErrorList {
	at := field.NewPath("spec")
	errs := validateBinding(b.Spec.PolicyName, b.Spec.ParamRef, at)
	return append(errs, validateMatch(b.Spec.MatchResources, mutable(), at.Child("matchResources"))...)
}

// validateBinding checks what bindings of both kinds have.
func validateBinding(policy string, ref *admissionv1.ParamRef, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if policy == "" {
		errs = append(errs, field.Required(at.Child("policyName"), ""))
	} else {
		errs = append(errs, check.Messages(at.Child("policyName"), policy, apivalidation.NameIsDNSSubdomain(policy, false))...)
	}
	if ref == nil {
		return errs
	}
	at = at.Child("paramRef")
	switch {
	case ref.Name == "" && ref.Selector == nil:
		errs = append(errs, field.Required(at, "one of name or selector must be specified"))
	case ref.Name != "" && ref.Selector != nil:
		const message = "name and selector are mutually exclusive"
		errs = append(errs, field.Forbidden(at.Child("name"), message), field.Forbidden(at.Child("selector"), message))
	case ref.Name != "":
		errs = append(errs, check.Messages(at.Child("name"), ref.Name, content.IsPathSegmentName(ref.Name))...)
	default:
		errs = append(errs, check.Selector(at.Child("selector"), ref.Selector)...)
	}
	return append(errs, check.OneOf(at.Child("parameterNotFoundAction"), ptr.Deref(ref.ParameterNotFoundAction, ""),
		admissionv1.DenyAction, admissionv1.AllowAction)...)
}
