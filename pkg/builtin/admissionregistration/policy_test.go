package admissionregistration

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

func goodPolicy() *admissionv1.ValidatingAdmissionPolicy {
	return &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "example.com"},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: constraints(),
			Validations:      []admissionv1.Validation{{Expression: "object.data.a == 'b'"}},
		},
	}
}

func TestValidateValidatingPolicies(t *testing.T) {
	t.Parallel()
	type spec = admissionv1.ValidatingAdmissionPolicySpec
	with := func(change func(*spec)) func(*admissionv1.ValidatingAdmissionPolicy) {
		return func(p *admissionv1.ValidatingAdmissionPolicy) { change(&p.Spec) }
	}
	validate := func(p *admissionv1.ValidatingAdmissionPolicy) field.ErrorList {
		return validateValidatingPolicy(p, nil)
	}
	checkCases(t, goodPolicy, validate, map[string]validCase[admissionv1.ValidatingAdmissionPolicy]{
		"good": {"nothing is wrong", with(func(*spec) {}), ""},
		"empty": {
			"a policy matches and judges", with(func(s *spec) { *s = spec{} }),
			`[spec.matchConstraints: Required value, ` +
				`spec.validations: Required value: validations or auditAnnotations must contain at least one item, ` +
				`spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item]`,
		},
		"no rule": {
			"rules say what the types are", with(func(s *spec) { s.MatchConstraints.ResourceRules = nil }),
			`spec.matchConstraints.resourceRules: Required value`,
		},
		"type": {
			"validations are true or false", with(func(s *spec) { s.Validations[0].Expression = "'a'" }),
			`spec.validations[0].expression: Invalid value: "'a'": must evaluate to bool but got string`,
		},
		"syntax": {
			"expressions compile", with(func(s *spec) { s.Validations[0].Expression = "object.(" }),
			"spec.validations[0].expression: Invalid value: \"object.(\": compilation failed: ERROR: <input>:1:8: Syntax error: no viable alternative at input '.('\n" +
				" | object.(\n | .......^",
		},
		"params": {
			"they are there with a kind only", with(func(s *spec) { s.Validations[0].Expression = "params.a == 1" }),
			"spec.validations[0].expression: Invalid value: \"params.a == 1\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'params' (in container '')\n" +
				" | params.a == 1\n | ^",
		},
		"params with a kind": {"they are there", with(func(s *spec) {
			s.ParamKind = &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
			s.Validations[0].Expression, s.Validations[0].MessageExpression = "params.a == 1", "'not ' + params.a"
			s.MatchConditions = []admissionv1.MatchCondition{{Name: "n", Expression: "has(params.a)"}}
		}), ""},
		"param kind": {
			"it is a kind", with(func(s *spec) { s.ParamKind = &admissionv1.ParamKind{APIVersion: "a/b/c", Kind: "Config Map"} }),
			`[spec.paramKind.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c, ` +
				`spec.paramKind.kind: Invalid value: "Config Map": may have mixed case, but should otherwise match: ` +
				`a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, ` +
				`and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')]`,
		},
		"variables": {"validations see variables, and those the ones before them", with(func(s *spec) {
			s.Variables = []admissionv1.Variable{{Name: "a", Expression: "object.data.a"}, {Name: "b", Expression: "variables.a == 'b'"}}
			s.Validations[0].Expression = "variables.b"
		}), ""},
		"variable names": {
			"they are identifiers", with(func(s *spec) {
				s.Variables = []admissionv1.Variable{{Name: "in", Expression: "1"}, {Name: "b"}}
			}),
			`[spec.variables[0].name: Invalid value: "in": name is not a valid CEL identifier, ` +
				`spec.variables[1].expression: Required value: expression is not specified]`,
		},
		"message": {
			"it is one line", with(func(s *spec) { s.Validations[0].Message = "a\nb" }),
			`spec.validations[0].message: Invalid value: "a\nb": message must not contain line breaks`,
		},
		"message expression": {
			"it makes a string", with(func(s *spec) { s.Validations[0].MessageExpression = "1" }),
			`spec.validations[0].messageExpression: Invalid value: "1": must evaluate to string but got int`,
		},
		"reason": {
			"the answer has one of three", with(func(s *spec) { s.Validations[0].Reason = ptr.To(metav1.StatusReasonGone) }),
			`spec.validations[0].reason: Unsupported value: "Gone": supported values: "Forbidden", "Invalid", "RequestEntityTooLarge"`,
		},
		"annotations": {
			"keys are unique and qualified", with(func(s *spec) {
				s.AuditAnnotations = []admissionv1.AuditAnnotation{{Key: "a", ValueExpression: "'x'"}, {Key: "a", ValueExpression: "null"}, {Key: "b", ValueExpression: "1"}}
			}),
			`[spec.auditAnnotations[1].key: Duplicate value: "a", ` +
				`spec.auditAnnotations[2].valueExpression: Invalid value: "1": must evaluate to one of [string null_type] but got int]`,
		},
	})
}

func TestValidateMutatingPolicies(t *testing.T) {
	t.Parallel()
	type spec = admissionv1.MutatingAdmissionPolicySpec
	good := func() *admissionv1.MutatingAdmissionPolicy {
		return &admissionv1.MutatingAdmissionPolicy{Spec: spec{
			MatchConstraints: constraints(), ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
			Mutations: []admissionv1.Mutation{{
				PatchType:          admissionv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionv1.ApplyConfiguration{Expression: `Object{metadata: Object.metadata{labels: {"a": "b"}}}`},
			}, {
				PatchType: admissionv1.PatchTypeJSONPatch,
				JSONPatch: &admissionv1.JSONPatch{Expression: `[JSONPatch{op: "remove", path: "/metadata/labels"}]`},
			}},
		}}
	}
	with := func(change func(*spec)) func(*admissionv1.MutatingAdmissionPolicy) {
		return func(p *admissionv1.MutatingAdmissionPolicy) { change(&p.Spec) }
	}
	validate := func(p *admissionv1.MutatingAdmissionPolicy) field.ErrorList { return validateMutatingPolicy(p, nil) }
	checkCases(t, good, validate, map[string]validCase[admissionv1.MutatingAdmissionPolicy]{
		"good": {"nothing is wrong", with(func(*spec) {}), ""},
		"empty": {
			"a policy matches and changes", with(func(s *spec) { *s = spec{} }),
			`[spec.matchConstraints: Required value, spec.mutations: Required value: mutations must contain at least one item, ` +
				`spec.reinvocationPolicy: Required value]`,
		},
		"delete": {
			"nothing is left to change", with(func(s *spec) {
				s.MatchConstraints.ResourceRules[0].Operations = []admissionv1.OperationType{admissionv1.Delete}
			}),
			`spec.matchConstraints.resourceRules[0].operations[0]: Unsupported value: "DELETE": supported values: "*", "CONNECT", "CREATE", "UPDATE"`,
		},
		"type": {
			"each patch type has its type", with(func(s *spec) {
				s.Mutations[0].ApplyConfiguration.Expression, s.Mutations[1].JSONPatch.Expression = "true", "[1]"
			}),
			`[spec.mutations[0].applyConfiguration.expression: Invalid value: "true": must evaluate to Object but got bool, ` +
				`spec.mutations[1].jsonPatch.expression: Invalid value: "[1]": must evaluate to list(JSONPatch) but got list(int)]`,
		},
		"other field": {
			"the patch type says which field", with(func(s *spec) {
				s.Mutations[0].PatchType, s.Mutations[1].PatchType = s.Mutations[1].PatchType, s.Mutations[0].PatchType
			}),
			`[spec.mutations[0].applyConfiguration: Invalid value: "{applyConfiguration}": must not be specified when patchType is JSONPatch, ` +
				`spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch, ` +
				`spec.mutations[1].jsonPatch: Invalid value: "{jsonPatch}": must not be specified when patchType is ApplyConfiguration, ` +
				`spec.mutations[1].applyConfiguration: Required value: must be specified when patchType is ApplyConfiguration]`,
		},
		"patch type": {
			"there are two", with(func(s *spec) { s.Mutations[0].PatchType, s.Mutations[1].PatchType = "", "Strategic" }),
			`[spec.mutations[0].patchType: Required value, ` +
				`spec.mutations[1].patchType: Unsupported value: "Strategic": supported values: "ApplyConfiguration", "JSONPatch"]`,
		},
	})
}

func TestValidateBindings(t *testing.T) {
	t.Parallel()
	type spec = admissionv1.ValidatingAdmissionPolicyBindingSpec
	good := func() *admissionv1.ValidatingAdmissionPolicyBinding {
		return &admissionv1.ValidatingAdmissionPolicyBinding{Spec: spec{
			PolicyName: "p", ParamRef: reference(), ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny, admissionv1.Audit},
		}}
	}
	with := func(change func(*spec)) func(*admissionv1.ValidatingAdmissionPolicyBinding) {
		return func(b *admissionv1.ValidatingAdmissionPolicyBinding) { change(&b.Spec) }
	}
	validate := func(b *admissionv1.ValidatingAdmissionPolicyBinding) field.ErrorList {
		return validateValidatingBinding(b, nil)
	}
	checkCases(t, good, validate, map[string]validCase[admissionv1.ValidatingAdmissionPolicyBinding]{
		"good": {"nothing is wrong", with(func(*spec) {}), ""},
		"empty": {
			"a binding names a policy and what to do", with(func(s *spec) { *s = spec{} }),
			`[spec.policyName: Required value, spec.validationActions: Required value: at least one validation action is required]`,
		},
		"parameters": {
			"they are named, and it is said what happens without", with(func(s *spec) { s.ParamRef = &admissionv1.ParamRef{} }),
			`[spec.paramRef: Required value: one of name or selector must be specified, spec.paramRef.parameterNotFoundAction: Required value]`,
		},
		"name and selector": {
			"one of them", with(func(s *spec) { s.ParamRef.Selector = &metav1.LabelSelector{} }),
			`[spec.paramRef.name: Forbidden: name and selector are mutually exclusive, ` +
				`spec.paramRef.selector: Forbidden: name and selector are mutually exclusive]`,
		},
		"actions": {
			"nobody is told twice", with(func(s *spec) { s.ValidationActions = append(s.ValidationActions, admissionv1.Warn, "Shout", "Audit") }),
			`[spec.validationActions[3]: Unsupported value: "Shout": supported values: "Audit", "Deny", "Warn", ` +
				`spec.validationActions[4]: Duplicate value: "Audit", ` +
				`spec.validationActions: Invalid value: ["Deny","Audit","Warn","Shout","Audit"]: must not contain both Deny and Warn ` +
				`(repeating the same validation failure information in the API response and headers serves no purpose)]`,
		},
	})
}
