package core

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateMetaFinalizers is the one rule on metadata that Kubernetes has for
// its built-in types beyond those for all objects: a finalizer without a domain
// must be one that Kubernetes itself knows.
func validateMetaFinalizers(m *metav1.ObjectMeta) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("metadata", "finalizers")
	for i, name := range m.Finalizers {
		errs = append(errs, validateFinalizerDomain(name, path.Index(i))...)
	}
	return errs
}

// validateFinalizer checks a name in spec.finalizers of a namespace.
func validateFinalizer(name corev1.FinalizerName, path *field.Path) field.ErrorList {
	errs := apivalidation.ValidateFinalizerName(string(name), path)
	return append(errs, validateFinalizerDomain(string(name), path)...)
}

func validateFinalizerDomain(name string, path *field.Path) field.ErrorList {
	known := []string{string(corev1.FinalizerKubernetes), metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents}
	if strings.Contains(name, "/") || slices.Contains(known, name) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified")}
}
