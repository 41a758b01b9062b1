// Package admit makes Go functions admission plugins.
//
// All functions that mutate run first, in the order of the parts, then all that
// validate. They run in the request, after authorization and before the object
// is stored. An error denies the request. A Status error of
// k8s.io/apimachinery/pkg/api/errors stays as it is, or gets the text of its
// wrapper; any other becomes 403 Forbidden with its text.
//
// Policies and webhooks are parts too, [MutatingPolicies], [MutatingWebhooks],
// [ValidatingPolicies] and [ValidatingWebhooks]: a function sees the changes of
// the parts before it, and is called when none of them denied.
package admit

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// Attributes say what is asked: the operation (create, update, delete,
// connect), the resource and sub-resource, the user, and the object as the Go
// type of its group or as *unstructured.Unstructured for custom resources.
type Attributes = admission.Attributes

// The operations of Attributes.GetOperation.
const (
	Create  = admission.Create
	Update  = admission.Update
	Delete  = admission.Delete
	Connect = admission.Connect
)

// Func judges a request, and may change its object when it mutates.
type Func = func(ctx context.Context, a Attributes) error

// Validate is called for every write that no plugin has denied. It must not
// change the object.
func Validate(name string, f Func) controlplane.Part { return part{name: name, validate: f} }

// Mutate is called for every write before validation and may change the object
// that Attributes.GetObject returns, in place. On delete there is none. When a
// policy or a webhook changed the object it is called again, once: it must be idempotent.
func Mutate(name string, f Func) controlplane.Part { return part{name: name, mutate: f} }

// ValidateObject calls f with the typed object of creates and updates of main
// resources, and with the old one on update (nil on create); requests for other
// types pass. T is a pointer type, such as *corev1.ConfigMap, or
// *unstructured.Unstructured for every custom resource.
func ValidateObject[T any](name string, f func(ctx context.Context, obj, old T, a Attributes) error) controlplane.Part {
	return part{name: name, validate: typed(f)}
}

// MutateObject calls f with the typed object of creates and updates of main
// resources, to be changed in place, as ValidateObject does.
func MutateObject[T any](name string, f func(ctx context.Context, obj, old T, a Attributes) error) controlplane.Part {
	return part{name: name, mutate: typed(f)}
}

// Plugin adds an admission plugin written for kube-apiserver. Plugins are
// initialised as there (k8s.io/apiserver/pkg/admission/initializer). A plugin
// that watches types that no part serves is an error of Build. The plugin is
// built once per plane.
func Plugin(name string, build func() (admission.Interface, error)) controlplane.Part {
	return part{name: name, build: build}
}

func typed[T any](f func(ctx context.Context, obj, old T, a Attributes) error) Func {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, a Attributes) error {
		obj, ok := a.GetObject().(T)
		if !ok || a.GetSubresource() != "" || a.GetOperation() != Create && a.GetOperation() != Update {
			return nil
		}
		old, _ := a.GetOldObject().(T) // nil on create
		return f(ctx, obj, old, a)
	}
}

type part struct {
	name             string
	validate, mutate Func
	build            func() (admission.Interface, error)
}

// PartName implements the name errors use.
func (p part) PartName() string { return fmt.Sprintf("admission %s", p.name) }

// Install declares the plugin.
func (p part) Install(plan *controlplane.Plan) error {
	if p.name == "" {
		return errors.New(`the admission function has no name: give it one, such as "no-rotten-apples"`)
	}
	switch {
	case p.build != nil:
		plugin, err := p.build()
		if err != nil {
			return err
		}
		plan.Admit(p.name, plugin)
	case p.mutate != nil:
		plan.Admit(p.name, mutating{p.name, p.mutate})
	case p.validate != nil:
		plan.Admit(p.name, validating{p.name, p.validate})
	default:
		return errors.New("the admission function is nil")
	}
	return nil
}

// mutating and validating are two types because the chain tells by interface
// which of the two a plugin does.
type mutating struct {
	name string
	f    Func
}

func (mutating) Handles(admission.Operation) bool { return true }

func (m mutating) Admit(ctx context.Context, a Attributes, _ admission.ObjectInterfaces) error {
	return denied(a, m.name, m.f(ctx, a))
}

type validating struct {
	name string
	f    Func
}

func (validating) Handles(admission.Operation) bool { return true }

func (v validating) Validate(ctx context.Context, a Attributes, _ admission.ObjectInterfaces) error {
	return denied(a, v.name, v.f(ctx, a))
}

// denied turns an error into a Status that says which function denied what.
func denied(a Attributes, name string, err error) error {
	if err == nil {
		return nil
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		if _, ok := err.(apierrors.APIStatus); ok {
			return err
		}
		// The server answers 500 for a wrapped Status.
		s := status.Status()
		s.Message = err.Error()
		return &apierrors.StatusError{ErrStatus: s}
	}
	return admission.NewForbidden(a, fmt.Errorf("admission %q denied the request: %w", name, err))
}
