package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// ConditionAvailable is the type of the condition that tells whether the
	// guestbook can be read.
	ConditionAvailable = "Available"

	// Finalizer is on every guestbook that is in the directory of its namespace.
	Finalizer = "webapp.example.com/directory"
)

// GuestbookSpec defines the desired state of a Guestbook.
// +kubebuilder:validation:XValidation:rule="self.replicas <= self.maxReplicas",message="replicas must not be more than maxReplicas"
type GuestbookSpec struct {
	// title is what the page begins with.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Title string `json:"title"`

	// greeting is what a guest is greeted with. The webhook sets it from the title.
	// +optional
	Greeting string `json:"greeting,omitempty"`

	// replicas is how many servers serve the page.
	// +optional
	// +default=1
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`

	// maxReplicas bounds replicas.
	// +optional
	// +default=5
	// +kubebuilder:validation:Minimum=1
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`

	// storage is where the entries are kept.
	// +optional
	// +default="Memory"
	// +kubebuilder:validation:Enum=Memory;Disk
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="storage cannot be changed"
	Storage string `json:"storage,omitempty"`
}

// GuestbookStatus defines the observed state of a Guestbook.
type GuestbookStatus struct {
	// readyReplicas is how many servers serve the page now.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`

	// conditions are the observations of the guestbook's state: Available.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Guestbook is a page in which guests write.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Title",type=string,JSONPath=`.spec.title`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyReplicas`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Guestbook struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec GuestbookSpec `json:"spec"`

	// +optional
	Status GuestbookStatus `json:"status,omitempty"`
}

// GuestbookList is a list of Guestbooks.
// +kubebuilder:object:root=true
type GuestbookList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Guestbook `json:"items"`
}
