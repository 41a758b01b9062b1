package core

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/sailplane-dev/sailplane/pkg/resource"
)

// statusRules are what /status of a kind needs to know of it.
type statusRules[T any] struct {
	keepSpec   func(obj, old *T)
	keepStatus func(obj, old *T)
	validate   func(*T) field.ErrorList
}

// options give a resource the /status of the oldest kinds of Kubernetes. It is
// not resource.StatusAndMetadata, because these have rules of their own on what
// is kept and what is valid.
func (r statusRules[T]) options() []resource.Option {
	return []resource.Option{
		resource.PrepareForCreate(func(_ context.Context, obj *T) { r.keepStatus(obj, new(T)) }),
		resource.PrepareForUpdate(func(_ context.Context, obj, old *T) { r.keepStatus(obj, old) }),
		resource.Store(func(s *registry.Store) { s.ResetFieldsStrategy = resetFields{fieldpath.MakePathOrDie("status")} }),
		resource.Subresource("status", func(s *registry.Store) rest.Storage {
			status := *s
			status.UpdateStrategy = statusUpdate[T]{s.UpdateStrategy, r}
			status.ResetFieldsStrategy = resetFields{fieldpath.MakePathOrDie("spec")}
			return statusStorage{TableConvertor: s, store: &status}
		}),
	}
}

// statusUpdate is the strategy of /status.
type statusUpdate[T any] struct {
	rest.RESTUpdateStrategy
	rules statusRules[T]
}

func (statusUpdate[T]) AllowCreateOnUpdate(context.Context) bool { return false }

func (u statusUpdate[T]) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	now, ok := any(obj).(*T)
	if was, both := any(old).(*T); ok && both {
		u.rules.keepSpec(now, was)
	}
}

func (u statusUpdate[T]) ValidateUpdate(_ context.Context, obj, _ runtime.Object) field.ErrorList {
	now, ok := any(obj).(*T)
	if !ok {
		return field.ErrorList{field.InternalError(nil, fmt.Errorf("status of %T, not of %T", obj, now))}
	}
	return u.rules.validate(now)
}

func (statusUpdate[T]) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

// statusStorage serves /status from a copy of the store with its own strategy.
type statusStorage struct {
	rest.TableConvertor
	store *registry.Store
}

var (
	_ rest.Patcher             = statusStorage{}
	_ rest.ResetFieldsStrategy = statusStorage{}
)

// New returns an empty object.
func (s statusStorage) New() runtime.Object { return s.store.New() }

// Destroy does nothing: the resource destroys what it shares.
func (statusStorage) Destroy() {}

// Get returns the object. Patch needs it.
func (s statusStorage) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return s.store.Get(ctx, name, options)
}

// Update changes status and metadata of an object that exists.
func (s statusStorage) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo,
	create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return s.store.Update(ctx, name, info, create, update, false, options)
}

// GetResetFields are the fields that a write to /status ignores.
func (s statusStorage) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.store.GetResetFields()
}
