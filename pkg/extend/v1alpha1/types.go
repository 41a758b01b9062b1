// Package v1alpha1 has the types of the group policy.sailplane.dev, by which API servers ask
// the one in front of them.
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SchemeGroupVersion is the group version of the types.
func SchemeGroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "policy.sailplane.dev", Version: "v1alpha1"}
}

// CreateReview asks whether somebody may create an object that another server stores, and
// reserves what it takes of the quotas of its namespace. It is answered at once and not stored.
type CreateReview struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the question.
	Spec CreateReviewSpec `json:"spec"`
	// Status is the answer, filled in by the server.
	Status CreateReviewStatus `json:"status,omitempty"`
}

// CreateReviewSpec says who wants to create what.
type CreateReviewSpec struct {
	// User is the name of who asks. User or groups are required.
	User string `json:"user,omitempty"`
	// Groups are those of the user.
	Groups []string `json:"groups,omitempty"`
	// UID is that of the user.
	UID string `json:"uid,omitempty"`
	// Extra are further fields of the user.
	Extra map[string][]string `json:"extra,omitempty"`

	// Group, Version and Resource are those of the object: apps, v1, deployments. Version and
	// resource are required.
	Group    string `json:"group,omitempty"`
	Version  string `json:"version"`
	Resource string `json:"resource"`
	// Namespace is that of the object. Empty: the resource has no namespaces, and the question
	// is about the right to create only.
	Namespace string `json:"namespace,omitempty"`
	// Name is that of the object. Empty: it is not known yet.
	Name string `json:"name,omitempty"`
	// DryRun has nothing reserved.
	DryRun bool `json:"dryRun,omitempty"`
}

// CreateReviewStatus says whether the object may be created.
type CreateReviewStatus struct {
	// Allowed tells that the namespace exists and is not being deleted, that the user has the
	// right, and that the quotas have room, which is reserved.
	Allowed bool `json:"allowed"`
	// Error is what the user should be answered if not.
	Error *metav1.Status `json:"error,omitempty"`
}

// DeepCopyInto copies the review into another.
func (in *CreateReview) DeepCopyInto(out *CreateReview) {
	*out = *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Groups = append([]string(nil), in.Spec.Groups...)
	if in.Spec.Extra != nil {
		out.Spec.Extra = make(map[string][]string, len(in.Spec.Extra))
		for name, values := range in.Spec.Extra {
			out.Spec.Extra[name] = append([]string(nil), values...)
		}
	}
	out.Status.Error = in.Status.Error.DeepCopy()
}

// DeepCopyObject implements runtime.Object.
func (in *CreateReview) DeepCopyObject() runtime.Object {
	out := &CreateReview{}
	in.DeepCopyInto(out)
	return out
}
