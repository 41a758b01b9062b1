package crd

import (
	"context"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
)

// establishDelay is how long upstream lets creates of custom resources sleep
// while their CRD's Established condition is younger than this, so that other
// replicas have seen the CRD too. One replica serves a plane.
// https://github.com/kubernetes/apiextensions-apiserver/blob/v0.37.2/pkg/apiserver/customresource_handler.go#L385
const establishDelay = 2 * time.Second

// establishAtOnce sets the time of a fresh Established condition back by the
// delay, as it is written.
type establishAtOnce struct{}

// Handles implements admission.Interface.
func (establishAtOnce) Handles(op admission.Operation) bool { return op == admission.Update }

// Admit implements admission.MutationInterface.
func (establishAtOnce) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != apiextensions.Resource("customresourcedefinitions") || a.GetSubresource() != "status" {
		return nil
	}
	crd, ok := a.GetObject().(*apiextensions.CustomResourceDefinition)
	if !ok {
		return nil
	}
	for i := range crd.Status.Conditions {
		c := &crd.Status.Conditions[i]
		// Whatever its status: requests are served, and sleep, as soon as the
		// names are accepted, a moment before the CRD is established.
		if c.Type == apiextensions.Established && time.Since(c.LastTransitionTime.Time) < establishDelay {
			c.LastTransitionTime = metav1.NewTime(time.Now().Add(-establishDelay))
		}
	}
	return nil
}
