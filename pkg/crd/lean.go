package crd

import (
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// lean decodes CRDs without keeping what they were converted from: upstream has
// the internal version point at a bool that is a field of the stored one, and so
// a watch cache keeps every schema twice.
// https://github.com/kubernetes/apiextensions-apiserver/blob/v0.36.6/pkg/apis/apiextensions/v1/zz_generated.conversion.go#L481
type lean struct{ runtime.Codec }

// Decode implements runtime.Decoder.
func (l lean) Decode(data []byte, given *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	o, kind, err := l.Codec.Decode(data, given, into)
	if crd, ok := o.(*apiextensions.CustomResourceDefinition); ok && crd.Spec.PreserveUnknownFields != nil {
		crd.Spec.PreserveUnknownFields = new(*crd.Spec.PreserveUnknownFields)
	}
	return o, kind, err
}
