package apis

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// Action is a resource that stores nothing: a create is answered with the sent
// object, filled in, as a SubjectAccessReview is. Its only verb is create. The
// plural name is lower-case, "tokenreviews"; the kind is the name of T, a struct
// type that the API registers.
//
// prepare makes, once for each plane, the function that answers by changing the
// object. An error of k8s.io/apimachinery/pkg/api/errors is returned as it is.
func Action[T any, PT interface {
	*T
	Object
}](gv schema.GroupVersion, name string, namespaced bool,
	prepare func(controlplane.BuildConfig) func(ctx context.Context, obj PT) error,
) controlplane.Resource {
	d := Resource[T, T, PT, PT](name) // for the names that follow from the type
	return controlplane.Resource{
		Name: name, Kind: d.kind, Versions: []string{gv.Version},
		Build: func(config controlplane.BuildConfig) (controlplane.ResourceStorage, error) {
			a := &action[T, PT]{singular: d.singular, namespaced: namespaced, answer: prepare(config)}
			return controlplane.ResourceStorage{gv.Version: {name: a}}, nil
		},
	}
}

type action[T any, PT interface {
	*T
	Object
}] struct {
	singular   string
	namespaced bool
	answer     func(ctx context.Context, obj PT) error
}

// New implements rest.Storage.
func (*action[T, PT]) New() runtime.Object { return PT(new(T)) }

// Destroy implements rest.Storage.
func (*action[T, PT]) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (a *action[T, PT]) NamespaceScoped() bool { return a.namespaced }

// GetSingularName implements rest.SingularNameProvider.
func (a *action[T, PT]) GetSingularName() string { return a.singular }

// Create implements rest.Creater.
func (a *action[T, PT]) Create(
	ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions,
) (runtime.Object, error) {
	typed, ok := obj.(PT)
	if !ok {
		return nil, fmt.Errorf("got %T, want %T", obj, typed)
	}
	if validate != nil {
		if err := validate(ctx, obj.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	if err := a.answer(ctx, typed); err != nil {
		return nil, err
	}
	return typed, nil
}
