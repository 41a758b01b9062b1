package projected

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ownersAnnotation is the annotation below that keeps the managed fields of the view: its fields
// are not those of the object below, which has managed fields of its own.
func (s *Store) ownersAnnotation() string { return s.Resource.String() + "/managed-fields" }

// showMetadata gives an object of the view the metadata of the one below.
func (s *Store) showMetadata(below, view Object) {
	view.SetLabels(maps.Clone(below.GetLabels()))
	annotations := maps.Clone(below.GetAnnotations())
	owners := annotations[s.ownersAnnotation()]
	delete(annotations, s.ownersAnnotation())
	if len(annotations) == 0 {
		annotations = nil
	}
	view.SetAnnotations(annotations)
	view.SetFinalizers(slices.Clone(below.GetFinalizers()))
	view.SetOwnerReferences(slices.Clone(below.GetOwnerReferences()))
	identify(below, view)
	var managed []metav1.ManagedFieldsEntry
	if json.Unmarshal([]byte(owners), &managed) == nil { // who broke it has taken the fields from everybody
		view.SetManagedFields(managed)
	}
}

// identify gives an object of the view what it cannot have of its own.
func identify(below, view Object) {
	view.SetNamespace(below.GetNamespace())
	view.SetName(below.GetName())
	view.SetGenerateName(below.GetGenerateName())
	view.SetUID(below.GetUID())
	view.SetResourceVersion(below.GetResourceVersion())
	view.SetGeneration(below.GetGeneration())
	view.SetCreationTimestamp(below.GetCreationTimestamp())
	view.SetDeletionTimestamp(below.GetDeletionTimestamp())
	view.SetDeletionGracePeriodSeconds(below.GetDeletionGracePeriodSeconds())
}

// acceptMetadata makes the changes of an object of the view to the metadata below: what the view
// does not show stays.
func (s *Store) acceptMetadata(was, view, below Object) error {
	below.SetLabels(changed(was.GetLabels(), view.GetLabels(), below.GetLabels()))
	annotations := changed(was.GetAnnotations(), view.GetAnnotations(), below.GetAnnotations())
	below.SetFinalizers(changedList(was.GetFinalizers(), view.GetFinalizers(), below.GetFinalizers()))
	below.SetOwnerReferences(changedList(was.GetOwnerReferences(), view.GetOwnerReferences(), below.GetOwnerReferences()))
	if managed := view.GetManagedFields(); len(managed) == 0 {
		delete(annotations, s.ownersAnnotation())
	} else if !reflect.DeepEqual(managed, was.GetManagedFields()) {
		owners, err := json.Marshal(managed)
		if err != nil {
			return err
		}
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[s.ownersAnnotation()] = string(owners)
	}
	below.SetAnnotations(annotations)
	return nil
}

// changed makes the changes between two maps to a third one.
func changed(was, is, of map[string]string) map[string]string {
	of = maps.Clone(of)
	for k := range was {
		if _, kept := is[k]; !kept {
			delete(of, k)
		}
	}
	for k, v := range is {
		if before, had := was[k]; had && before == v {
			continue
		}
		if of == nil {
			of = map[string]string{}
		}
		of[k] = v
	}
	return of
}

// changedList makes the changes between two lists to a third one.
func changedList[E any](was, is, of []E) []E {
	in := func(list []E) func(E) bool {
		return func(e E) bool {
			return slices.ContainsFunc(list, func(other E) bool { return reflect.DeepEqual(e, other) })
		}
	}
	of = slices.DeleteFunc(slices.Clone(of), func(e E) bool { return in(was)(e) && !in(is)(e) })
	for _, e := range is {
		if !in(was)(e) && !in(of)(e) {
			of = append(of, e)
		}
	}
	return of
}
