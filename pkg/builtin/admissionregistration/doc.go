// Package admissionregistration has the resources of the group
// admissionregistration.k8s.io (v1), which say who decides about writes:
//
//   - [ValidatingWebhookConfigurations] and [MutatingWebhookConfigurations],
//     servers to ask
//   - [ValidatingAdmissionPolicies] and [MutatingAdmissionPolicies], rules in
//     CEL, and [ValidatingAdmissionPolicyBindings] and
//     [MutatingAdmissionPolicyBindings], which say where they apply
//   - [PolicyStatus], which checks the types in the rules
//
// [All] is all of them.
//
// The parts here store and check the objects. Only the parts of pkg/admit obey them:
// ValidatingWebhooks, MutatingWebhooks, ValidatingPolicies and MutatingPolicies.
package admissionregistration

import (
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// All is every part of the package.
func All() controlplane.Parts {
	return controlplane.Parts{
		ValidatingWebhookConfigurations{},
		MutatingWebhookConfigurations{},
		ValidatingAdmissionPolicies{},
		ValidatingAdmissionPolicyBindings{},
		MutatingAdmissionPolicies{},
		MutatingAdmissionPolicyBindings{},
		PolicyStatus{},
	}
}

// shared is the group, made once per process: its scheme, codecs and
// definitions are the same for every plane.
var shared = sync.OnceValue(func() *apis.Group {
	return apis.NewGroup(admissionv1.SchemeGroupVersion, nil, admissionregistrationDefinitions, validatingWebhooks(), mutatingWebhooks(),
		validatingPolicies(), validatingBindings(), mutatingPolicies(), mutatingBindings())
})
