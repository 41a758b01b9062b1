// Package meta has the rules that the types of k8s.io/apimachinery/pkg/apis/meta/v1
// declare, which others contain.
//
// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/apimachinery/pkg/apis/meta/v1
package meta
