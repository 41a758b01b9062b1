package main

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/sailplane-dev/sailplane/examples/typed/fruit/v1"
	"github.com/sailplane-dev/sailplane/examples/typed/fruit/v1alpha1"
	"github.com/sailplane-dev/sailplane/pkg/apis"
)

// fruits is the API group fruit.example.com: apples, stored as v1 and served
// as v1 and v1alpha1. The functions see v1 whatever version a client speaks.
func fruits() *apis.Group {
	return apis.NewGroup(v1.GroupVersion(), nil, nil,
		apis.Resource[v1.Apple, v1.AppleList]("apples",
			apis.ShortNames("ap"),
			apis.Version[v1alpha1.Apple, v1alpha1.AppleList]("v1alpha1", v1alpha1.ToHub, v1alpha1.FromHub),
			apis.Enum(v1.Red, v1.Green),
			apis.Describe[v1.AppleSpec]("Variety", "Name of the cultivar. It cannot be changed."),
			apis.Default(defaultApple),
			apis.Validate(validateApple),
			apis.ValidateUpdate(validateAppleUpdate),
			apis.Status(),
			apis.Scale(
				func(a *v1.Apple) (*int32, int32, string) { return a.Spec.Replicas, a.Status.Replicas, "" },
				func(a *v1.Apple, replicas int32) { a.Spec.Replicas = &replicas },
			),
			apis.Columns(
				func(a *v1.Apple) []any {
					return []any{a.Spec.Variety, string(a.Spec.Colour), int64(*a.Spec.Replicas), int64(a.Status.Replicas)}
				},
				metav1.TableColumnDefinition{Name: "Variety", Type: "string"},
				metav1.TableColumnDefinition{Name: "Colour", Type: "string"},
				metav1.TableColumnDefinition{Name: "Wanted", Type: "integer"},
				metav1.TableColumnDefinition{Name: "Grown", Type: "integer"},
			),
		))
}

func defaultApple(a *v1.Apple) {
	if a.Spec.Colour == "" {
		a.Spec.Colour = v1.Red
	}
	if a.Spec.Replicas == nil {
		a.Spec.Replicas = ptr.To[int32](1)
	}
}

func validateApple(_ context.Context, a *v1.Apple) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	if a.Spec.Variety == "" {
		errs = append(errs, field.Required(spec.Child("variety"), "every apple has one"))
	}
	if colours := []v1.Colour{v1.Red, v1.Green}; !slices.Contains(colours, a.Spec.Colour) {
		errs = append(errs, field.NotSupported(spec.Child("colour"), a.Spec.Colour, colours))
	}
	return append(errs, validation.ValidateNonnegativeField(int64(*a.Spec.Replicas), spec.Child("replicas"))...)
}

func validateAppleUpdate(_ context.Context, a, old *v1.Apple) field.ErrorList {
	return validation.ValidateImmutableField(a.Spec.Variety, old.Spec.Variety, field.NewPath("spec", "variety"))
}
