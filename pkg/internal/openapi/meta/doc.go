// Package meta holds the OpenAPI definitions that every API group needs,
// whatever it serves: meta/v1 (ObjectMeta, Status, DeleteOptions, ...), runtime,
// intstr, Quantity, version.Info and autoscaling/v1 Scale.
//
// The definitions are generated from the published Go types by hack/openapi:
//
//	go run ./hack/openapi
//
// They are here, and not taken from a published module, because the modules
// that carry them (apiextensions-apiserver, kube-aggregator) would be linked
// into programs that serve neither CRDs nor APIServices.
package meta
