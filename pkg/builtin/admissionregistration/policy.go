package admissionregistration

import (
	"context"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// ValidatingAdmissionPolicies is the part that serves
// validatingadmissionpolicies (admissionregistration.k8s.io/v1) with their
// /status, and the admission plugin that refuses a paramKind whose objects the
// user may not read. The part admit.ValidatingPolicies obeys them.
// The part [PolicyStatus] writes the status.
type ValidatingAdmissionPolicies struct{}

// Install adds validatingadmissionpolicies to the group.
func (ValidatingAdmissionPolicies) Install(p *controlplane.Plan) error {
	p.Admit("ValidatingAdmissionPolicyParams", newPermission(validatingPolicyKind))
	return shared().Serve(p, validatingPolicies())
}

// ValidatingAdmissionPolicyBindings is the part that serves
// validatingadmissionpolicybindings (admissionregistration.k8s.io/v1), and the
// admission plugin that refuses a paramRef whose objects the user may not read.
type ValidatingAdmissionPolicyBindings struct{}

// Install adds validatingadmissionpolicybindings to the group.
func (ValidatingAdmissionPolicyBindings) Install(p *controlplane.Plan) error {
	p.Admit("ValidatingAdmissionPolicyBindingParams", newPermission(validatingBindingKind))
	return shared().Serve(p, validatingBindings())
}

// MutatingAdmissionPolicies is the part that serves mutatingadmissionpolicies
// (admissionregistration.k8s.io/v1), and the admission plugin that refuses a
// paramKind whose objects the user may not read. The part
// admit.MutatingPolicies obeys them.
type MutatingAdmissionPolicies struct{}

// Install adds mutatingadmissionpolicies to the group.
func (MutatingAdmissionPolicies) Install(p *controlplane.Plan) error {
	p.Admit("MutatingAdmissionPolicyParams", newPermission(mutatingPolicyKind))
	return shared().Serve(p, mutatingPolicies())
}

// MutatingAdmissionPolicyBindings is the part that serves
// mutatingadmissionpolicybindings (admissionregistration.k8s.io/v1), and the
// admission plugin that refuses a paramRef whose objects the user may not read.
type MutatingAdmissionPolicyBindings struct{}

// Install adds mutatingadmissionpolicybindings to the group.
func (MutatingAdmissionPolicyBindings) Install(p *controlplane.Plan) error {
	p.Admit("MutatingAdmissionPolicyBindingParams", newPermission(mutatingBindingKind))
	return shared().Serve(p, mutatingBindings())
}

func validatingPolicies() *apis.Definition {
	type policy = admissionv1.ValidatingAdmissionPolicy
	return apis.Resource[policy, admissionv1.ValidatingAdmissionPolicyList]("validatingadmissionpolicies",
		options(validateValidatingPolicy, apis.Status(),
			apis.Default(func(p *policy) {
				setDefault(&p.Spec.FailurePolicy, admissionv1.Fail)
				defaultMatch(p.Spec.MatchConstraints)
			}),
			apis.Validate(func(_ context.Context, p *policy) field.ErrorList {
				return validateStatus(&p.Status, field.NewPath("status"))
			}),
			apis.Columns(func(p *policy) []any {
				return []any{int64(len(p.Spec.Validations)), paramKind(p.Spec.ParamKind)}
			}, columns("Validations", "ParamKind")...))...)
}

func validatingBindings() *apis.Definition {
	type binding = admissionv1.ValidatingAdmissionPolicyBinding
	return apis.Resource[binding, admissionv1.ValidatingAdmissionPolicyBindingList]("validatingadmissionpolicybindings",
		options(validateValidatingBinding,
			apis.Default(func(b *binding) { defaultMatch(b.Spec.MatchResources) }),
			apis.Columns(func(b *binding) []any {
				return []any{b.Spec.PolicyName, paramRef(b.Spec.ParamRef)}
			}, columns("PolicyName", "ParamRef")...))...)
}

func mutatingPolicies() *apis.Definition {
	type policy = admissionv1.MutatingAdmissionPolicy
	return apis.Resource[policy, admissionv1.MutatingAdmissionPolicyList]("mutatingadmissionpolicies",
		options(validateMutatingPolicy,
			apis.Default(func(p *policy) {
				setDefault(&p.Spec.FailurePolicy, admissionv1.Fail)
				defaultMatch(p.Spec.MatchConstraints)
			}),
			apis.Columns(func(p *policy) []any {
				return []any{int64(len(p.Spec.Mutations)), paramKind(p.Spec.ParamKind)}
			}, columns("Mutations", "ParamKind")...))...)
}

func mutatingBindings() *apis.Definition {
	type binding = admissionv1.MutatingAdmissionPolicyBinding
	return apis.Resource[binding, admissionv1.MutatingAdmissionPolicyBindingList]("mutatingadmissionpolicybindings",
		options(validateMutatingBinding,
			apis.Default(func(b *binding) { defaultMatch(b.Spec.MatchResources) }),
			apis.Columns(func(b *binding) []any {
				return []any{b.Spec.PolicyName, paramRef(b.Spec.ParamRef)}
			}, columns("PolicyName", "ParamRef")...))...)
}

const unset = "<unset>"

func paramKind(k *admissionv1.ParamKind) string {
	if k == nil {
		return unset
	}
	return k.APIVersion + "/" + k.Kind
}

// paramRef names the parameters of a binding. It does not tell whether they are
// namespaced, so those without a namespace get "*".
func paramRef(r *admissionv1.ParamRef) string {
	switch {
	case r == nil:
		return unset
	case r.Name != "" && r.Namespace != "":
		return r.Namespace + "/" + r.Name
	case r.Name != "":
		return "*/" + r.Name
	case r.Selector != nil:
		return metav1.FormatLabelSelector(r.Selector)
	}
	return unset
}
