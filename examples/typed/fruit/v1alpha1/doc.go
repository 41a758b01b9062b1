// Package v1alpha1 is an older version of the API group fruit.example.com, in
// which the variety of an apple was called its sort.
//
// +k8s:deepcopy-gen=package
package v1alpha1
