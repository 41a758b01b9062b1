package apis

import (
	"context"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// scale reads and writes the replicas of an object.
type scale struct {
	get func(runtime.Object) (spec *int32, status int32, selector string)
	set func(runtime.Object, int32)
}

// of is the Scale of an object.
func (s *scale) of(obj runtime.Object) *autoscalingv1.Scale {
	o := obj.(Object)
	spec, status, selector := s.get(obj)
	return &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name:              o.GetName(),
			Namespace:         o.GetNamespace(),
			UID:               o.GetUID(),
			ResourceVersion:   o.GetResourceVersion(),
			CreationTimestamp: o.GetCreationTimestamp(),
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: ptr.Deref(spec, 0)},
		Status: autoscalingv1.ScaleStatus{Replicas: status, Selector: selector},
	}
}

// scaleStorage serves /scale.
type scaleStorage struct {
	rest.TableConvertor
	store *registry.Store
	scale *scale
	hub   schema.GroupVersion
	paths managedfields.ResourcePathMappings
}

var (
	_ rest.Patcher                  = &scaleStorage{}
	_ rest.GroupVersionKindProvider = &scaleStorage{}
)

func newScaleStorage(store *registry.Store, s *scale, served []schema.GroupVersion) *scaleStorage {
	paths := managedfields.ResourcePathMappings{}
	for _, gv := range served {
		paths[gv.String()] = fieldpath.MakePathOrDie("spec", "replicas")
	}
	return &scaleStorage{
		TableConvertor: rest.NewDefaultTableConvertor(store.DefaultQualifiedResource),
		store:          store,
		scale:          s,
		hub:            served[0],
		paths:          paths,
	}
}

func (s *scaleStorage) New() runtime.Object { return &autoscalingv1.Scale{} }

// Destroy does nothing: the resource destroys what it shares.
func (s *scaleStorage) Destroy() {}

// GroupVersionKind is the kind of Scale in every version of the resource.
func (s *scaleStorage) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return autoscalingv1.SchemeGroupVersion.WithKind("Scale")
}

func (s *scaleStorage) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	obj, err := s.store.Get(ctx, name, options)
	if err != nil {
		return nil, err
	}
	return s.scale.of(obj), nil
}

// Update sets the wanted replicas of the object. Admission sees Scales.
func (s *scaleStorage) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo,
	createValidation rest.ValidateObjectFunc, updateValidation rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	obj, _, err := s.store.Update(ctx, name, &scaledObject{UpdatedObjectInfo: info, storage: s},
		func(ctx context.Context, obj runtime.Object) error {
			return createValidation(ctx, s.scale.of(obj))
		},
		func(ctx context.Context, obj, old runtime.Object) error {
			return updateValidation(ctx, s.scale.of(obj), s.scale.of(old))
		}, false, options)
	if err != nil {
		return nil, false, err
	}
	return s.scale.of(obj), false, nil
}

// scaledObject turns an update of the Scale into one of the object.
type scaledObject struct {
	rest.UpdatedObjectInfo
	storage *scaleStorage
}

// UpdatedObject returns a copy of the old object with the replicas, and the
// owner of the replicas, of the updated Scale.
func (u *scaledObject) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
	obj := old.DeepCopyObject().(Object)
	owners := managedfields.NewScaleHandler(obj.GetManagedFields(), u.storage.hub, u.storage.paths)
	was := u.storage.scale.of(obj)
	var err error
	if was.ManagedFields, err = owners.ToSubresource(); err != nil {
		return nil, err
	}
	updated, err := u.UpdatedObjectInfo.UpdatedObject(ctx, was)
	if err != nil {
		return nil, err
	}
	wanted, ok := updated.(*autoscalingv1.Scale)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("want a Scale, got %T", updated))
	}
	errs := apivalidation.ValidateNonnegativeField(int64(wanted.Spec.Replicas), field.NewPath("spec", "replicas"))
	if len(errs) > 0 {
		return nil, apierrors.NewInvalid(autoscalingv1.SchemeGroupVersion.WithKind("Scale").GroupKind(), obj.GetName(), errs)
	}
	u.storage.scale.set(obj, wanted.Spec.Replicas)
	obj.SetResourceVersion(wanted.ResourceVersion)
	managed, err := owners.ToParent(wanted.ManagedFields)
	if err != nil {
		return nil, err
	}
	obj.SetManagedFields(managed)
	return obj, nil
}
