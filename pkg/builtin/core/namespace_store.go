package core

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// namespaceStore sets what is special about the store of namespaces.
func namespaceStore(s *registry.Store) {
	s.CreateStrategy = namespaceCreate{s.CreateStrategy}
	s.ResetFieldsStrategy = resetFields{fieldpath.MakePathOrDie("status"), fieldpath.MakePathOrDie("spec", "finalizers")}
	s.ReturnDeletedObject = true
	// Besides metadata.finalizers, which the store asks about itself.
	s.ShouldDeleteDuringUpdate = func(_ context.Context, _ string, obj, _ runtime.Object) bool {
		ns, ok := obj.(*corev1.Namespace)
		return ok && len(ns.Spec.Finalizers) == 0
	}
}

// namespaceCreate labels a namespace whose name was generated: only what runs
// last knows it.
type namespaceCreate struct{ rest.RESTCreateStrategy }

func (namespaceCreate) Canonicalize(obj runtime.Object) {
	if ns, ok := obj.(*corev1.Namespace); ok {
		labelNamespace(ns)
	}
}

// resetFields are the fields that a write ignores, so that server-side apply
// does not own them.
type resetFields []fieldpath.Path

func (r resetFields) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return map[fieldpath.APIVersion]*fieldpath.Set{
		fieldpath.APIVersion(corev1.SchemeGroupVersion.String()): fieldpath.NewSet(r...),
	}
}

// namespaceUpdate is the strategy of a sub-resource: it keeps a part of the old
// namespace and validates the other.
type namespaceUpdate struct {
	rest.RESTUpdateStrategy
	keep     func(ns, old *corev1.Namespace)
	validate func(ns *corev1.Namespace) field.ErrorList
}

func (namespaceUpdate) AllowCreateOnUpdate(context.Context) bool { return false }

func (u namespaceUpdate) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	ns, ok := obj.(*corev1.Namespace)
	if was, isNamespace := old.(*corev1.Namespace); ok && isNamespace {
		u.keep(ns, was)
	}
}

func (u namespaceUpdate) ValidateUpdate(_ context.Context, obj, _ runtime.Object) field.ErrorList {
	ns, ok := obj.(*corev1.Namespace)
	if !ok {
		return field.ErrorList{field.InternalError(nil, errNotNamespace(obj))}
	}
	return u.validate(ns)
}

// namespaceFinalize serves /finalize, which only takes PUT. The store is a copy
// with a strategy of its own and shares the storage of the resource.
type namespaceFinalize struct{ store *registry.Store }

// namespaceStatus serves /status.
type namespaceStatus struct {
	namespaceFinalize
	rest.TableConvertor
}

var (
	_ rest.Updater             = namespaceFinalize{}
	_ rest.ResetFieldsStrategy = namespaceFinalize{}
	_ rest.Patcher             = namespaceStatus{}
)

func newNamespaceFinalize(s *registry.Store) rest.Storage {
	return namespaceFinalize{subresourceStore(s, namespaceUpdate{
		RESTUpdateStrategy: s.UpdateStrategy,
		keep:               func(ns, old *corev1.Namespace) { ns.Status = old.Status },
		validate:           validateNamespaceFinalize,
	}, "status")}
}

func newNamespaceStatus(s *registry.Store) rest.Storage {
	return namespaceStatus{namespaceFinalize{subresourceStore(s, namespaceUpdate{
		RESTUpdateStrategy: s.UpdateStrategy,
		keep:               func(ns, old *corev1.Namespace) { ns.Spec = old.Spec },
		validate:           validateNamespaceStatus,
	}, "spec")}, s}
}

func subresourceStore(s *registry.Store, u namespaceUpdate, reset string) *registry.Store {
	c := *s
	c.UpdateStrategy = u
	c.ResetFieldsStrategy = resetFields{fieldpath.MakePathOrDie(reset)}
	return &c
}

// New returns an empty namespace.
func (f namespaceFinalize) New() runtime.Object { return f.store.New() }

// Destroy does nothing: the resource destroys what it shares.
func (namespaceFinalize) Destroy() {}

// Update changes a namespace that exists.
func (f namespaceFinalize) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo,
	create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return f.store.Update(ctx, name, info, create, update, false, options)
}

// GetResetFields are the fields that the sub-resource ignores.
func (f namespaceFinalize) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return f.store.GetResetFields()
}

// Get returns the namespace. Patch needs it.
func (s namespaceStatus) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return s.store.Get(ctx, name, options)
}
