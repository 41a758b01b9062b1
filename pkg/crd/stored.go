package crd

import (
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// stored decodes CRDs in the form that clients and caches need.
type stored struct{ runtime.Codec }

// Decode implements runtime.Decoder.
func (s stored) Decode(data []byte, given *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	o, kind, err := s.Codec.Decode(data, given, into)
	crd, ok := o.(*apiextensions.CustomResourceDefinition)
	if !ok {
		return o, kind, err
	}
	// Upstream has the internal version point at a bool that is a field of the
	// version it was converted from, and so a watch cache keeps every schema twice.
	// https://github.com/kubernetes/apiextensions-apiserver/blob/v0.37.2/pkg/apis/apiextensions/v1/zz_generated.conversion.go#L451
	if crd.Spec.PreserveUnknownFields != nil {
		crd.Spec.PreserveUnknownFields = new(*crd.Spec.PreserveUnknownFields)
	}
	// A new CRD has the conditions null, at which "kubectl wait" gives up; with
	// empty ones it waits.
	if crd.Status.Conditions == nil {
		crd.Status.Conditions = []apiextensions.CustomResourceDefinitionCondition{}
	}
	return o, kind, err
}
