package core

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
)

// namespaceStore adapts the store to namespaces.
func namespaceStore(s *registry.Store) {
	s.CreateStrategy = namespaceCreate{s.CreateStrategy}
	s.ReturnDeletedObject = true
	// Besides metadata.finalizers, which the store checks itself.
	s.ShouldDeleteDuringUpdate = func(_ context.Context, _ string, obj, _ runtime.Object) bool {
		ns, ok := obj.(*corev1.Namespace)
		return ok && len(ns.Spec.Finalizers) == 0
	}
}

// namespaceCreate labels a namespace whose name was generated: only the last step knows it.
type namespaceCreate struct{ rest.RESTCreateStrategy }

func (namespaceCreate) Canonicalize(obj runtime.Object) {
	if ns, ok := obj.(*corev1.Namespace); ok {
		labelNamespace(ns)
	}
}
