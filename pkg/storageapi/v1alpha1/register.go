package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the name of the API group.
const GroupName = "storage.sailplane.dev"

// SchemeGroupVersion is the group version of the types.
func SchemeGroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}
}

// AddToScheme registers the types, for clients.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion(), &EtcdStorage{}, &EtcdStorageList{})
	metav1.AddToGroupVersion(s, SchemeGroupVersion())
	return nil
}
