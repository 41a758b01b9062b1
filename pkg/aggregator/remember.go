package aggregator

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// WasAvailable is a condition of remote APIServices. It is True from the first
// time that Available is, until the APIService is deleted; writes of the status
// cannot remove it. The deletion of a namespace waits for a dead server only with
// this condition: nothing was ever written through an APIService without it.
const WasAvailable apiregistrationv1.APIServiceConditionType = "WasAvailable"

// rememberAvailable adds WasAvailable to every written status of an APIService
// that is or was Available, so the checks of availability need not know it.
type rememberAvailable struct{}

// Handles implements admission.Interface.
func (rememberAvailable) Handles(op admission.Operation) bool { return op == admission.Update }

// Admit implements admission.MutationInterface.
func (rememberAvailable) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != apiregistration.Resource("apiservices") || a.GetSubresource() != "status" {
		return nil
	}
	service, ok := a.GetObject().(*apiregistration.APIService)
	old, had := a.GetOldObject().(*apiregistration.APIService)
	if !ok || !had || old.Spec.Service == nil { // the server takes the rest of the object from the old one
		return nil
	}
	const was = apiregistration.APIServiceConditionType(WasAvailable)
	remembered := condition(old, was)
	if remembered == nil || remembered.Status != apiregistration.ConditionTrue {
		if !isTrue(old, apiregistration.Available) && !isTrue(service, apiregistration.Available) {
			return nil
		}
		remembered = &apiregistration.APIServiceCondition{
			Type: was, Status: apiregistration.ConditionTrue, LastTransitionTime: metav1.Now(),
			Reason: "Available", Message: "the server has been available: while it is not, the deletion of namespaces waits for it",
		}
	}
	if now := condition(service, was); now != nil {
		*now = *remembered
		return nil
	}
	service.Status.Conditions = append(service.Status.Conditions, *remembered)
	return nil
}

// condition is an APIService's condition of a type, nil when it has none.
func condition(s *apiregistration.APIService, t apiregistration.APIServiceConditionType) *apiregistration.APIServiceCondition {
	i := slices.IndexFunc(s.Status.Conditions, func(c apiregistration.APIServiceCondition) bool { return c.Type == t })
	if i < 0 {
		return nil
	}
	return &s.Status.Conditions[i]
}

func isTrue(s *apiregistration.APIService, t apiregistration.APIServiceConditionType) bool {
	c := condition(s, t)
	return c != nil && c.Status == apiregistration.ConditionTrue
}
