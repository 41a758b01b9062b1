package crd

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/tools/cache"
)

// shareSpec has an informer keep the spec that it has when it is told of a CRD of
// which only the status changed. A CRD's first writes are of its status, and what
// serves its objects keeps the spec it was made from: all schemas were there twice.
// Nobody may change what an informer has, so nobody can tell.
func shareSpec(known cache.Store) cache.TransformFunc {
	return func(o any) (any, error) {
		crd, ok := o.(*apiextensionsv1.CustomResourceDefinition)
		if !ok {
			return o, nil // the name of one that was deleted
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
