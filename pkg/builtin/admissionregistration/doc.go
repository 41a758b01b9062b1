// Package admissionregistration has the resources of the group
// admissionregistration.k8s.io (v1), which say who decides about writes:
//
//   - [ValidatingWebhookConfigurations] and [MutatingWebhookConfigurations],
//     servers that are asked
//   - [ValidatingAdmissionPolicies] and [MutatingAdmissionPolicies], rules in
//     CEL, and [ValidatingAdmissionPolicyBindings] and
//     [MutatingAdmissionPolicyBindings], which say where they hold
//   - [PolicyStatus], which checks the types in the rules
//
// [All] is all of them.
//
// The parts here keep and check the objects. Nothing obeys them but with the
// parts of pkg/admit: ValidatingWebhooks, MutatingWebhooks, ValidatingPolicies
// and MutatingPolicies.
package admissionregistration

import (
	"errors"
	"maps"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kube-openapi/pkg/common"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/openapi/meta"
	"github.com/sailplane-dev/sailplane/pkg/resource"
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

// sharedAPI is the group, made once per process: its scheme, codecs and
// definitions are the same for every plane.
var sharedAPI = sync.OnceValue(func() *controlplane.API {
	return controlplane.NewAPI(admissionv1.GroupName, []string{admissionv1.SchemeGroupVersion.Version}, controlplane.APIConfig{
		AddToScheme: addToScheme,
		Definitions: func() (common.GetOpenAPIDefinitions, error) { return definitions, nil },
		Protobuf:    true,
	})
})

func addToScheme(s *runtime.Scheme) error {
	var errs []error
	for _, d := range []*resource.Definition{
		validatingWebhooks(), mutatingWebhooks(),
		validatingPolicies(), validatingBindings(), mutatingPolicies(), mutatingBindings(),
	} {
		errs = append(errs, d.Register(s, admissionv1.SchemeGroupVersion))
	}
	return errors.Join(errs...)
}

func definitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	all := meta.Definitions(ref)
	maps.Copy(all, admissionregistrationDefinitions(ref))
	return all
}

// serve adds a resource to the group of a plane.
func serve(p *controlplane.Plan, d *resource.Definition) error {
	if err := d.Err(); err != nil {
		return err
	}
	p.Serve(sharedAPI(), d.Resource(admissionv1.SchemeGroupVersion))
	return nil
}
