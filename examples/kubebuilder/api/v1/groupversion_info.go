// Package v1 contains the API types of the group webapp.example.com, version v1.
// +kubebuilder:object:generate=true
// +groupName=webapp.example.com
package v1

//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.21.0 object crd webhook rbac:roleName=manager-role paths=../../... output:crd:artifacts:config=../../config/crd/bases output:rbac:artifacts:config=../../config/rbac output:webhook:artifacts:config=../../config/webhook

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the types.
var GroupVersion = schema.GroupVersion{Group: "webapp.example.com", Version: "v1"}

// AddToScheme adds the types to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Guestbook{}, &GuestbookList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
