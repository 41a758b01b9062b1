package aggregator

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured/unstructuredscheme"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// untyped are objects that no Go type is known of.
type untyped struct{}

// GetObjectCreater implements admission.ObjectInterfaces.
func (untyped) GetObjectCreater() runtime.ObjectCreater {
	return unstructuredscheme.NewUnstructuredCreator()
}

// GetObjectTyper implements admission.ObjectInterfaces.
func (untyped) GetObjectTyper() runtime.ObjectTyper {
	return unstructuredscheme.NewUnstructuredObjectTyper()
}

// GetObjectDefaulter implements admission.ObjectInterfaces.
func (untyped) GetObjectDefaulter() runtime.ObjectDefaulter {
	return unstructuredscheme.NewUnstructuredDefaulter()
}

// GetEquivalentResourceMapper implements admission.ObjectInterfaces.
func (untyped) GetEquivalentResourceMapper() runtime.EquivalentResourceMapper {
	return runtime.NewEquivalentResourceRegistry()
}

// GetObjectConvertor implements admission.ObjectInterfaces.
func (untyped) GetObjectConvertor() runtime.ObjectConvertor { return asTheyAre{} }

// asTheyAre converts between equal versions: others are the server's matter.
type asTheyAre struct{}

// Convert implements runtime.ObjectConvertor.
func (asTheyAre) Convert(in, out, _ any) error {
	from, ok1 := in.(runtime.Unstructured)
	to, ok2 := out.(runtime.Unstructured)
	if !ok1 || !ok2 {
		return fmt.Errorf("cannot convert %T to %T", in, out)
	}
	to.SetUnstructuredContent(from.UnstructuredContent())
	return nil
}

// ConvertToVersion implements runtime.ObjectConvertor.
func (asTheyAre) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	kind := in.GetObjectKind().GroupVersionKind()
	if got, ok := target.KindForGroupVersionKinds([]schema.GroupVersionKind{kind}); !ok || got != kind {
		return nil, fmt.Errorf("cannot convert %s", kind)
	}
	return in, nil
}

// ConvertFieldLabel implements runtime.ObjectConvertor.
func (asTheyAre) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}
