// Package storagemigration has the rules that the types of k8s.io/api/storagemigration/v1 declare.
//
// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/storagemigration/v1
package storagemigration
