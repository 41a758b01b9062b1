package admissionregistration

import (
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TestTooManyExpressions: what takes long to compile is refused before anything is compiled,
// and what is stored may be changed.
func TestTooManyExpressions(t *testing.T) {
	t.Parallel()
	// None of these compiles, which nobody says if it is not tried.
	conditions := func(n int) []admissionv1.MatchCondition {
		all := make([]admissionv1.MatchCondition, n)
		for i := range all {
			all[i] = admissionv1.MatchCondition{Name: fmt.Sprintf("c%d", i), Expression: "("}
		}
		return all
	}
	policy := func(n, size int) *admissionv1.ValidatingAdmissionPolicy {
		p := goodPolicy()
		p.Spec.Validations = nil
		for i := range n {
			p.Spec.Validations = append(p.Spec.Validations, admissionv1.Validation{
				Expression: "(" + strings.Repeat(" ", size-1), MessageExpression: "(", Message: fmt.Sprint(i),
			})
		}
		return p
	}
	mutating := func(n int) *admissionv1.MutatingAdmissionPolicy {
		p := &admissionv1.MutatingAdmissionPolicy{}
		for range n {
			p.Spec.Variables = append(p.Spec.Variables, admissionv1.Variable{Name: "a", Expression: "("})
			p.Spec.Mutations = append(p.Spec.Mutations, admissionv1.Mutation{
				PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{Expression: "("},
			})
		}
		return p
	}
	for name, tc := range map[string]struct {
		reason string
		errs   func() field.ErrorList
		many   bool
	}{
		"some":         {"they are compiled", func() field.ErrorList { return validateValidatingPolicy(policy(150, 1), nil) }, false},
		"many":         {"each costs", func() field.ErrorList { return validateValidatingPolicy(policy(151, 1), nil) }, true},
		"long":         {"each byte costs", func() field.ErrorList { return validateValidatingPolicy(policy(1, 8_193), nil) }, true},
		"long in all":  {"each byte costs", func() field.ErrorList { return validateValidatingPolicy(policy(5, 8_000), nil) }, true},
		"many before":  {"a stored policy may be changed", func() field.ErrorList { return validateValidatingPolicy(policy(160, 1), policy(161, 1)) }, false},
		"more":         {"but not to more", func() field.ErrorList { return validateValidatingPolicy(policy(161, 1), policy(160, 1)) }, true},
		"long before":  {"a stored policy may be changed", func() field.ErrorList { return validateValidatingPolicy(policy(2, 20_000), policy(3, 20_000)) }, false},
		"mutating":     {"variables and mutations count", func() field.ErrorList { return validateMutatingPolicy(mutating(151), nil) }, true},
		"of a webhook": {"those of all webhooks count", func() field.ErrorList { return validateHooks(hooksWith(conditions(301)), nil) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			errs := tc.errs()
			many := len(errs) == 1 && errs[0].Type == field.ErrorTypeForbidden && strings.Contains(errs[0].Detail, "split it")
			if many != tc.many || len(errs) == 0 {
				t.Errorf("%s: got %d errors, %.500v", tc.reason, len(errs), errs)
			}
		})
	}
}

// hooksWith are webhooks with so many conditions.
func hooksWith(conditions []admissionv1.MatchCondition) []hook {
	var all []hook
	for i := range conditions {
		h := hook{ValidatingWebhook: &admissionv1.ValidatingWebhook{}}
		h.MatchConditions = conditions[i : i+1]
		all = append(all, h)
	}
	return all
}
