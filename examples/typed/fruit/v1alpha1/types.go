package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sailplane-dev/sailplane/examples/typed/fruit/v1"
)

// Apple is a tree that is to bear apples.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type Apple struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   AppleSpec      `json:"spec"`
	Status v1.AppleStatus `json:"status,omitempty"`
}

// AppleSpec is what the gardener wants.
type AppleSpec struct {
	// Sort is the name of the cultivar, which v1 calls variety.
	Sort string `json:"sort"`
	// Colour of the ripe apples. Empty: red.
	Colour v1.Colour `json:"colour,omitempty"`
	// Replicas is the number of apples wanted. Empty: 1.
	Replicas *int32 `json:"replicas,omitempty"`
}

// AppleList is a list of apples.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type AppleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Apple `json:"items"`
}

// ToHub fills the stored version from this one.
func ToHub(in *Apple, out *v1.Apple) error {
	out.Spec = v1.AppleSpec{Variety: in.Spec.Sort, Colour: in.Spec.Colour, Replicas: in.Spec.Replicas}
	out.Status = in.Status
	return nil
}

// FromHub fills this version from the stored one.
func FromHub(in *v1.Apple, out *Apple) error {
	out.Spec = AppleSpec{Sort: in.Spec.Variety, Colour: in.Spec.Colour, Replicas: in.Spec.Replicas}
	out.Status = in.Status
	return nil
}
