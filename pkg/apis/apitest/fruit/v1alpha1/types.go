// Package v1alpha1 is an older version of package fruit: the variety was called
// sort, and the rest is the same.
package v1alpha1

import (
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Apple is a tree of apples.
type Apple struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   AppleSpec         `json:"spec,omitempty"`
	Status fruit.AppleStatus `json:"status,omitempty"`
}

// AppleSpec is what the gardener wants.
type AppleSpec struct {
	// Sort is what v1 calls the variety.
	Sort string `json:"sort,omitempty"`
	// Replicas is the number of apples wanted. Empty: 1.
	Replicas *int32 `json:"replicas,omitempty"`
	// Grafts are the branches grafted to the tree, by name.
	Grafts []fruit.Graft `json:"grafts,omitempty" patchStrategy:"merge" patchMergeKey:"name"`
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
	out.Spec.Grafts = append([]fruit.Graft(nil), a.Spec.Grafts...)
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

// ToHub makes an apple of v1.
func ToHub(in *Apple, out *fruit.Apple) error {
	out.Spec = fruit.AppleSpec{Variety: in.Spec.Sort, Replicas: in.Spec.Replicas, Grafts: in.Spec.Grafts}
	out.Status = in.Status
	return nil
}

// FromHub makes an apple of v1alpha1.
func FromHub(in *fruit.Apple, out *Apple) error {
	out.Spec = AppleSpec{Sort: in.Spec.Variety, Replicas: in.Spec.Replicas, Grafts: in.Spec.Grafts}
	out.Status = in.Status
	return nil
}
