package crd

import (
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// fixed is a codec that has one object decoded already.
type fixed struct {
	runtime.Codec
	object runtime.Object
}

func (f fixed) Decode([]byte, *schema.GroupVersionKind, runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	return f.object, nil, nil
}

// TestStored: nothing of a decoded CRD points into what it was converted from,
// and its conditions are a list.
func TestStored(t *testing.T) {
	t.Parallel()
	for name, preserve := range map[string]*bool{"unset": nil, "no": new(false), "yes": new(true)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crd := &apiextensions.CustomResourceDefinition{}
			crd.Spec.PreserveUnknownFields = preserve
			got, _, err := stored{fixed{object: crd}}.Decode(nil, nil, nil)
			if err != nil || got != crd {
				t.Fatalf("decoded %v, %v", got, err)
			}
			now := crd.Spec.PreserveUnknownFields
			if (now == nil) != (preserve == nil) || now != nil && *now != *preserve {
				t.Errorf("preserveUnknownFields is %v, want %v", now, preserve)
			}
			if now != nil && now == preserve {
				t.Error("preserveUnknownFields is that of the stored version, which it keeps in memory")
			}
			if crd.Status.Conditions == nil {
				t.Error("the conditions are null, not empty")
			}
		})
	}
	other := &metav1.Status{}
	if got, _, err := (stored{fixed{object: other}}).Decode(nil, nil, nil); err != nil || got != other {
		t.Errorf("another object: decoded %v, %v", got, err)
	}
}
