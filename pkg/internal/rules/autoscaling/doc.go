// Package autoscaling has the rules that the types of k8s.io/api/autoscaling/v2 declare.
//
// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/autoscaling/v2
package autoscaling
