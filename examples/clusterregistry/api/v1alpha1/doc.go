// Package v1alpha1 has the types of clusterregistry.k8s.io/v1alpha1, with the fields of the archived
// kubernetes/cluster-registry and the version of a cluster in its status.
//
// +k8s:deepcopy-gen=package
package v1alpha1
