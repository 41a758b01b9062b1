// Package fruit is a small API for examples and tests: apples, in the version
// that is stored, v1. Package v1alpha1 below it has an older version.
package fruit

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is fruit.example.com/v1.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "fruit.example.com", Version: "v1"}
}

// Apple is a tree of apples.
type Apple struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   AppleSpec   `json:"spec,omitempty"`
	Status AppleStatus `json:"status,omitempty"`
}

// AppleSpec is what the gardener wants.
type AppleSpec struct {
	// Variety is the name of the cultivar. It cannot be changed.
	Variety string `json:"variety,omitempty"`
	// Replicas is the number of apples wanted. Empty: 1.
	Replicas *int32 `json:"replicas,omitempty"`
	// Grafts are the branches grafted to the tree, by name.
	Grafts []Graft `json:"grafts,omitempty" patchStrategy:"merge" patchMergeKey:"name"`
}

// Graft is a branch of another variety.
type Graft struct {
	Name    string `json:"name"`
	Variety string `json:"variety,omitempty"`
}

// AppleStatus is what grows.
type AppleStatus struct {
	// Replicas is the number of apples on the tree.
	Replicas int32 `json:"replicas,omitempty"`
	// Ripe is the state of the apples.
	Ripe bool `json:"ripe,omitempty"`
}

// AppleList is a list of apples.
type AppleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Apple `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (a *Apple) DeepCopyObject() runtime.Object {
	out := &Apple{}
	a.deepCopyInto(out)
	return out
}

func (a *Apple) deepCopyInto(out *Apple) {
	*out = *a
	a.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	if a.Spec.Replicas != nil {
		replicas := *a.Spec.Replicas
		out.Spec.Replicas = &replicas
	}
	out.Spec.Grafts = append([]Graft(nil), a.Spec.Grafts...)
}

// DeepCopyObject implements runtime.Object.
func (l *AppleList) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]Apple, len(l.Items))
	for i := range l.Items {
		l.Items[i].deepCopyInto(&out.Items[i])
	}
	return &out
}
