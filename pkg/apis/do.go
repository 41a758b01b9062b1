package apis

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"
)

// Do adds a sub-resource, "restart", that does something with an object when a client posts
// to it, which takes the verb create. in is the body, and do returns the answer; a nil
// answer without an error is a Status that says Success. The types of both are structs with
// metav1.TypeMeta embedded and the methods DeepCopyObject and OpenAPIModelName, as for
// [Stream]; they are registered with the resource, unless AddToScheme has done that. The object is the stored one, and changing it
// changes nothing.
//
// Before do runs, admission has seen the body (as a create of the sub-resource), and the
// rules that its type declares have held. What else is wrong with it do says itself, with
// an error of k8s.io/apimachinery/pkg/api/errors such as NewInvalid, which is the answer.
//
// With dryRun=All do is not called: the answer is an empty one, after the object is found
// and the body is admitted.
func Do[T, I, O any, PI interface {
	*I
	runtime.Object
}, PO interface {
	*O
	runtime.Object
}](name string, do func(ctx context.Context, obj *T, in PI) (PO, error)) Option {
	return typed[T]("Do", func(d *Definition) {
		d.bodies = append(d.bodies, bodyOf(name, PI(new(I))), bodyOf(name, PO(new(O))))
		d.addSubresource(name, func(store *registry.Store, s strategy) rest.Storage {
			return &doStorage{
				strategy: s, store: store,
				in:  func() runtime.Object { return PI(new(I)) },
				out: func() runtime.Object { return PO(new(O)) },
				do: func(ctx context.Context, obj, in runtime.Object) (runtime.Object, error) {
					out, err := do(ctx, hubType[T](obj), any(in).(PI))
					if err != nil {
						return nil, err
					}
					if out == nil {
						return &metav1.Status{Status: metav1.StatusSuccess}, nil
					}
					return out, nil
				},
			}
		})
	})
}

// doStorage serves a sub-resource that does something.
type doStorage struct {
	strategy strategy
	store    *registry.Store
	in, out  func() runtime.Object
	do       func(ctx context.Context, obj, in runtime.Object) (runtime.Object, error)
}

var (
	_ rest.NamedCreater    = &doStorage{}
	_ rest.StorageMetadata = &doStorage{}
)

// New implements rest.Storage: the kind of the sub-resource is that of the body.
func (s *doStorage) New() runtime.Object { return s.in() }

// Destroy does nothing: the resource destroys what it shares.
func (s *doStorage) Destroy() {}

// ProducesMIMETypes implements rest.StorageMetadata.
func (s *doStorage) ProducesMIMETypes(string) []string { return nil }

// ProducesObject implements rest.StorageMetadata.
func (s *doStorage) ProducesObject(string) any { return s.out() }

// Create implements rest.NamedCreater.
func (s *doStorage) Create(
	ctx context.Context, name string, in runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions,
) (runtime.Object, error) {
	obj, err := s.store.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if validate != nil {
		if err := validate(ctx, in.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	if errs := bound(s.strategy.Scheme.Validate(ctx, s.strategy.d.ruleOptions, in)); len(errs) > 0 {
		kinds, _, err := s.strategy.ObjectKinds(in)
		if err != nil {
			return nil, fmt.Errorf("validate %T: %w", in, err)
		}
		return nil, apierrors.NewInvalid(kinds[0].GroupKind(), name, errs)
	}
	if dryrun.IsDryRun(options.DryRun) {
		return s.out(), nil
	}
	return s.do(ctx, obj, in)
}
