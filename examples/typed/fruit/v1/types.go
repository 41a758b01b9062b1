package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is fruit.example.com/v1.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "fruit.example.com", Version: "v1"}
}

// Apple is a tree that is to bear apples.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type Apple struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   AppleSpec   `json:"spec"`
	Status AppleStatus `json:"status,omitempty"`
}

// AppleSpec is what the gardener wants.
type AppleSpec struct {
	// Variety is the name of the cultivar. It cannot be changed.
	Variety string `json:"variety"`
	// Colour of the ripe apples. Empty: red.
	Colour Colour `json:"colour,omitempty"`
	// Replicas is the number of apples wanted. Empty: 1.
	Replicas *int32 `json:"replicas,omitempty"`
}

// AppleStatus is what grows.
type AppleStatus struct {
	// Replicas is the number of apples on the tree.
	Replicas int32 `json:"replicas,omitempty"`
}

// Colour is the colour of apples.
type Colour string

// The colours that apples have.
const (
	Red   Colour = "red"
	Green Colour = "green"
)

// AppleList is a list of apples.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type AppleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Apple `json:"items"`
}
