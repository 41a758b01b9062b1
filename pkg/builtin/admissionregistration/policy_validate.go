package admissionregistration

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/client-go/util/jsonpath"

	"github.com/sailplane-dev/sailplane/pkg/internal/check"
)

const (
	maxAnnotations = 20
	// maxAnnotationExpression is half of what an audit annotation may hold:
	// results tend to be longer than their expressions.
	maxAnnotationExpression = 5 * 1024
)

func validateValidatingPolicy(p, old *admissionv1.ValidatingAdmissionPolicy) field.ErrorList {
	if old != nil && equality.Semantic.DeepEqual(p.Spec, old.Spec) {
		return nil
	}
	now, before := ofValidatingPolicy(p), ofValidatingPolicy(old)
	if errs := tooMany(now, before, field.NewPath("spec")); errs != nil {
		return errs
	}
	known := knownIn(before)
	spec, at := &p.Spec, field.NewPath("spec")
	errs := check.OptionalOneOf(at.Child("failurePolicy"), spec.FailurePolicy, admissionv1.Fail, admissionv1.Ignore)
	errs = append(errs, validateParamKind(spec.ParamKind, at.Child("paramKind"))...)
	errs = append(errs, validateConstraints(spec.MatchConstraints, operations(), at.Child("matchConstraints"))...)
	errs = append(errs, validateConditions(spec.MatchConditions, spec.ParamKind != nil, known, at.Child("matchConditions"))...)
	c, more := newCompiler(spec.Variables, spec.ParamKind != nil, known, at.Child("variables"))
	errs = append(errs, more...)
	if len(spec.Validations) == 0 && len(spec.AuditAnnotations) == 0 {
		const message = "validations or auditAnnotations must contain at least one item"
		return append(errs, field.Required(at.Child("validations"), message), field.Required(at.Child("auditAnnotations"), message))
	}
	for i, v := range spec.Validations {
		errs = append(errs, c.validation(v, at.Child("validations").Index(i))...)
	}
	return append(errs, c.annotations(p.Name, spec.AuditAnnotations, at.Child("auditAnnotations"))...)
}

func (c compiler) validation(v admissionv1.Validation, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if strings.TrimSpace(v.Expression) == "" {
		errs = append(errs, field.Required(at.Child("expression"), "expression is not specified"))
	} else {
		errs = append(errs, c.compile(&validating.ValidationCondition{Expression: v.Expression}, c.declared(), at.Child("expression"))...)
	}
	switch {
	case v.MessageExpression == "":
	case strings.TrimSpace(v.MessageExpression) == "":
		errs = append(errs, field.Invalid(at.Child("messageExpression"), v.MessageExpression, "must be non-empty if specified"))
	default:
		errs = append(errs, c.compile(&validating.MessageExpressionCondition{MessageExpression: v.MessageExpression},
			plugincel.OptionalVariableDeclarations{HasParams: c.params}, at.Child("messageExpression"))...)
	}
	switch {
	case v.Message != "" && strings.TrimSpace(v.Message) == "":
		errs = append(errs, field.Invalid(at.Child("message"), v.Message, "message must be non-empty if specified"))
	case strings.ContainsAny(strings.TrimSpace(v.Message), "\n\r"):
		errs = append(errs, field.Invalid(at.Child("message"), v.Message, "message must not contain line breaks"))
	}
	return append(errs, check.OptionalOneOf(at.Child("reason"), v.Reason, metav1.StatusReasonForbidden, metav1.StatusReasonInvalid,
		metav1.StatusReasonRequestEntityTooLarge)...)
}

func (c compiler) annotations(policy string, all []admissionv1.AuditAnnotation, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(all) > maxAnnotations {
		errs = append(errs, field.Invalid(at, all, fmt.Sprintf("must not have more than %d auditAnnotations", maxAnnotations)))
	}
	for i, a := range all {
		at := at.Index(i)
		key := at.Child("key")
		if policy == "" {
			errs = append(errs, field.Invalid(key, a.Key, "requires metadata.name be non-empty"))
		} else {
			errs = append(errs, check.Messages(key, policy+"/"+a.Key, validation.IsQualifiedName(policy+"/"+a.Key))...)
		}
		value := at.Child("valueExpression")
		switch trimmed := strings.TrimSpace(a.ValueExpression); {
		case trimmed == "":
			errs = append(errs, field.Required(value, "valueExpression is not specified"))
		case len(trimmed) > maxAnnotationExpression:
			errs = append(errs, field.Required(value, fmt.Sprintf("must not exceed %d bytes in length", maxAnnotationExpression)))
		default:
			errs = append(errs, c.compile(&validating.AuditAnnotationCondition{ValueExpression: a.ValueExpression}, c.declared(), value)...)
		}
		if slices.ContainsFunc(all[:i], func(b admissionv1.AuditAnnotation) bool { return b.Key == a.Key }) {
			errs = append(errs, field.Duplicate(key, a.Key))
		}
	}
	return errs
}

func validateMutatingPolicy(p, old *admissionv1.MutatingAdmissionPolicy) field.ErrorList {
	if old != nil && equality.Semantic.DeepEqual(p.Spec, old.Spec) {
		return nil
	}
	now, before := ofMutatingPolicy(p), ofMutatingPolicy(old)
	if errs := tooMany(now, before, field.NewPath("spec")); errs != nil {
		return errs
	}
	known := knownIn(before)
	spec, at := &p.Spec, field.NewPath("spec")
	errs := check.OptionalOneOf(at.Child("failurePolicy"), spec.FailurePolicy, admissionv1.Fail, admissionv1.Ignore)
	errs = append(errs, validateParamKind(spec.ParamKind, at.Child("paramKind"))...)
	errs = append(errs, validateConstraints(spec.MatchConstraints, mutable(), at.Child("matchConstraints"))...)
	errs = append(errs, validateConditions(spec.MatchConditions, spec.ParamKind != nil, known, at.Child("matchConditions"))...)
	c, more := newCompiler(spec.Variables, spec.ParamKind != nil, known, at.Child("variables"))
	errs = append(errs, more...)
	if len(spec.Mutations) == 0 {
		errs = append(errs, field.Required(at.Child("mutations"), "mutations must contain at least one item"))
	}
	for i, m := range spec.Mutations {
		errs = append(errs, c.mutation(m, at.Child("mutations").Index(i))...)
	}
	return append(errs, check.OneOf(at.Child("reinvocationPolicy"), spec.ReinvocationPolicy,
		admissionv1.NeverReinvocationPolicy, admissionv1.IfNeededReinvocationPolicy)...)
}

func (c compiler) mutation(m admissionv1.Mutation, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	apply, jsonPatch := at.Child("applyConfiguration"), at.Child("jsonPatch")
	switch m.PatchType {
	case admissionv1.PatchTypeApplyConfiguration:
		if m.JSONPatch != nil {
			errs = append(errs, field.Invalid(jsonPatch, "{jsonPatch}", "must not be specified when patchType is ApplyConfiguration"))
		}
		if m.ApplyConfiguration == nil {
			return append(errs, field.Required(apply, "must be specified when patchType is ApplyConfiguration"))
		}
		e := &patch.ApplyConfigurationCondition{Expression: m.ApplyConfiguration.Expression}
		errs = append(errs, c.patch(e, apply.Child("expression"))...)
	case admissionv1.PatchTypeJSONPatch:
		if m.ApplyConfiguration != nil {
			errs = append(errs, field.Invalid(apply, "{applyConfiguration}", "must not be specified when patchType is JSONPatch"))
		}
		if m.JSONPatch == nil {
			return append(errs, field.Required(jsonPatch, "must be specified when patchType is JSONPatch"))
		}
		e := &patch.JSONPatchCondition{Expression: m.JSONPatch.Expression}
		errs = append(errs, c.patch(e, jsonPatch.Child("expression"))...)
	default:
		errs = append(errs, check.OneOf(at.Child("patchType"), m.PatchType,
			admissionv1.PatchTypeApplyConfiguration, admissionv1.PatchTypeJSONPatch)...)
	}
	return errs
}

func (c compiler) patch(e plugincel.ExpressionAccessor, at *field.Path) field.ErrorList {
	if strings.TrimSpace(e.GetExpression()) == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	declared := c.declared()
	declared.HasPatchTypes = true
	return c.compile(e, declared, at)
}

func validateParamKind(k *admissionv1.ParamKind, at *field.Path) field.ErrorList {
	if k == nil {
		return nil
	}
	var errs field.ErrorList
	version := at.Child("apiVersion")
	gv, err := schema.ParseGroupVersion(k.APIVersion)
	switch {
	case k.APIVersion == "":
		errs = append(errs, field.Required(version, ""))
	case err != nil:
		errs = append(errs, field.Invalid(version, k.APIVersion, err.Error()))
	case gv.Version == "":
		errs = append(errs, field.Invalid(version, k.APIVersion, "version must be specified"))
	default:
		if gv.Group != "" {
			errs = append(errs, check.Messages(version, gv.Group, validation.IsDNS1123Subdomain(gv.Group))...)
		}
		errs = append(errs, check.Messages(version, gv.Version, validation.IsDNS1035Label(gv.Version))...)
	}
	if k.Kind == "" {
		return append(errs, field.Required(at.Child("kind"), ""))
	}
	for _, message := range validation.IsDNS1035Label(strings.ToLower(k.Kind)) {
		errs = append(errs, field.Invalid(at.Child("kind"), k.Kind, "may have mixed case, but should otherwise match: "+message))
	}
	return errs
}

func validateStatus(s *admissionv1.ValidatingAdmissionPolicyStatus, at *field.Path) field.ErrorList {
	errs := metav1validation.ValidateConditions(s.Conditions, at.Child("conditions"))
	if s.TypeChecking == nil {
		return errs
	}
	for i, w := range s.TypeChecking.ExpressionWarnings {
		at := at.Child("typeChecking", "expressionWarnings").Index(i)
		if w.Warning == "" {
			errs = append(errs, field.Required(at.Child("warning"), ""))
		}
		if ref := strings.TrimSpace(w.FieldRef); ref == "" {
			errs = append(errs, field.Required(at.Child("fieldRef"), ""))
		} else if err := jsonpath.New("spec").Parse("{" + ref + "}"); err != nil {
			errs = append(errs, field.Invalid(at.Child("fieldRef"), ref, fmt.Sprintf("invalid JSONPath: %v", err)))
		}
	}
	return errs
}
