package check

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
)

// OnlyCollected tells whether an update changes only what garbage collectors
// change, in the end to delete the object, or nothing at all, as when stored
// objects are rewritten. A create is no update.
func OnlyCollected(obj, old runtime.Object) bool {
	if old == nil {
		return false
	}
	obj = obj.DeepCopyObject()
	after, err := meta.Accessor(obj)
	if err != nil {
		return false
	}
	before, err := meta.Accessor(old)
	if err != nil {
		return false
	}
	after.SetOwnerReferences(before.GetOwnerReferences())
	after.SetFinalizers(before.GetFinalizers())
	after.SetManagedFields(before.GetManagedFields())
	obj.GetObjectKind().SetGroupVersionKind(old.GetObjectKind().GroupVersionKind())
	return equality.Semantic.DeepEqual(obj, old)
}
