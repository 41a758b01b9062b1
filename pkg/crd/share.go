package crd

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/tools/cache"
)

// shareSpec makes an informer keep the spec it has when only the status of a CRD
// changes. A CRD's first writes change its status, and the handlers of its
// objects keep the spec they were made from: memory would have all schemas twice.
// Sharing is safe: nobody may change an informer's objects.
func shareSpec(known cache.Store) cache.TransformFunc {
	return func(o any) (any, error) {
		crd, ok := o.(*apiextensionsv1.CustomResourceDefinition)
		if !ok {
			return o, nil // the key of a deleted CRD
		}
		// The generation changes with the spec.
		old, exists, err := known.Get(crd)
		if err != nil || !exists {
			return o, err
		}
		before, ok := old.(*apiextensionsv1.CustomResourceDefinition)
		if ok && before != crd && before.UID == crd.UID && before.Generation == crd.Generation {
			crd.Spec = before.Spec
		}
		return o, nil
	}
}
