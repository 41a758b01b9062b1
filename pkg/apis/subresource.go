package apis

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Update is what a write to a sub-resource does to an object of type T.
type Update[T any] struct {
	// Keep puts back what the sub-resource does not change, from the old object,
	// which must stay as it is.
	Keep func(obj, old *T)
	// Ignores are the fields that Keep puts back, "spec" or "status.certificate",
	// so that server-side apply does not own them.
	Ignores []string
	// Validate returns all that is wrong with the change. Only metadata is
	// checked besides: [Validate] and [ValidateUpdate] do not run.
	Validate func(ctx context.Context, obj, old *T) field.ErrorList
	// PutOnly leaves out the verbs get and patch.
	PutOnly bool
}

// UpdateSubresource adds a sub-resource that writes a part of an object with
// rules of its own. [Status] and [StatusAndMetadata] are for a status whose rules
// are those of the resource.
func UpdateSubresource[T any](name string, u Update[T]) Option {
	return typed[T]("UpdateSubresource", func(d *Definition) {
		d.addSubresource(name, func(store *registry.Store, s strategy) rest.Storage {
			served := newSubresource(store, partStrategy[T]{store.UpdateStrategy, reset(s.d.served(s.hub), u.Ignores), u})
			if u.PutOnly {
				return putOnly{served, served}
			}
			return served
		})
	})
}

// partStrategy is what the registry asks when a sub-resource is written.
type partStrategy[T any] struct {
	rest.RESTUpdateStrategy
	resetFields
	update Update[T]
}

func (partStrategy[T]) AllowCreateOnUpdate(context.Context) bool { return false }

func (s partStrategy[T]) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	s.update.Keep(hubType[T](obj), hubType[T](old))
}

func (s partStrategy[T]) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return s.update.Validate(ctx, hubType[T](obj), hubType[T](old))
}

func (partStrategy[T]) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

// resetFields are the fields that a write ignores, in each version.
type resetFields map[fieldpath.APIVersion]*fieldpath.Set

func (r resetFields) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set { return r }

func reset(versions []schema.GroupVersion, names []string) resetFields {
	fields := resetFields{}
	for _, gv := range versions {
		set := fieldpath.NewSet()
		for _, name := range names {
			set.Insert(pathOf(name))
		}
		fields[fieldpath.APIVersion(gv.String())] = set
	}
	return fields
}

// subresource serves a part of the objects from a copy of the store with a
// strategy of its own.
type subresource struct {
	rest.TableConvertor
	store *registry.Store
}

var (
	_ rest.Patcher             = &subresource{}
	_ rest.ResetFieldsStrategy = &subresource{}
)

// putOnly is a sub-resource without the verbs get and patch.
type putOnly struct {
	rest.Updater
	rest.ResetFieldsStrategy
}

func (putOnly) Destroy() {}

func newSubresource(store *registry.Store, s interface {
	rest.RESTUpdateStrategy
	rest.ResetFieldsStrategy
},
) *subresource {
	part := *store
	part.UpdateStrategy = s
	part.ResetFieldsStrategy = s
	return &subresource{TableConvertor: store, store: &part}
}

func (s *subresource) New() runtime.Object { return s.store.New() }

// Destroy does nothing: the resource destroys what it shares.
func (s *subresource) Destroy() {}

func (s *subresource) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return s.store.Get(ctx, name, options)
}

// Update changes an object that exists.
func (s *subresource) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo,
	createValidation rest.ValidateObjectFunc, updateValidation rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return s.store.Update(ctx, name, info, createValidation, updateValidation, false, options)
}

func (s *subresource) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.store.GetResetFields()
}
