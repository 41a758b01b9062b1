// Package v1alpha1 has the types of the group storage.sailplane.dev: an [EtcdStorage] asks for
// a storage with the API of etcd, for one API server.
//
// Its deep copies are generated, from the root of the repository:
//
//	go run k8s.io/code-generator/cmd/deepcopy-gen@v0.37.2 --output-file zz_generated.deepcopy.go ./pkg/storageapi/v1alpha1
//
// What `kubectl explain` says of the fields is made of their comments:
//
//	go test ./pkg/storageapi/v1alpha1 -update
//
// +k8s:deepcopy-gen=package
package v1alpha1
