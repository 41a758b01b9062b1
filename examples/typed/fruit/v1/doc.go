// Package v1 is the stored version of the API group fruit.example.com.
//
// Its deep copies are generated, from the root of the repository:
//
//	go run k8s.io/code-generator/cmd/deepcopy-gen@v0.36.6 --output-file zz_generated.deepcopy.go \
//		./examples/typed/fruit/v1 ./examples/typed/fruit/v1alpha1
//
// +k8s:deepcopy-gen=package
package v1
