// Package scheduling has the rules that the types of k8s.io/api/scheduling/v1alpha3
// declare, which others contain.
//
// +k8s:validation-gen=TypesWithSuffix=Workload
// +k8s:validation-gen-input=k8s.io/api/scheduling/v1alpha3
package scheduling
