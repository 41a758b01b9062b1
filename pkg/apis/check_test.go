package apis_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit/v1alpha1"
)

func TestErr(t *testing.T) {
	t.Parallel()
	apple := func(name string, options ...apis.Option) *apis.Definition {
		return apis.Resource[fruit.Apple, fruit.AppleList](name, options...)
	}
	version := apis.Version[v1alpha1.Apple, v1alpha1.AppleList]("v1alpha1", v1alpha1.ToHub, v1alpha1.FromHub)
	none := func(*registry.Store) rest.Storage { return nil }
	cases := map[string]struct {
		reason     string
		definition *apis.Definition
		want       []string
	}{
		"good": {"every option together is fine", everything(), nil},
		"names": {
			"all names are checked", apple("Apples", apis.Singular("an apple"), apis.ShortNames("A"), apis.Kind("apple")),
			[]string{`name "Apples"`, `singular "an apple"`, `short name "A"`, `kind "apple"`},
		},
		"empty kind": {"nothing is not a kind", apple("apples", apis.Kind("")), []string{`kind ""`}},
		"other type": {
			"typed options are for the type of the resource",
			apple("apples", apis.Validate(func(context.Context, *corev1.Secret) field.ErrorList { return nil })),
			[]string{`resource "apples": Validate is for *v1.Secret, not *fruit.Apple`},
		},
		"no such metadata": {
			"what /status may keep", apple("apples", apis.StatusAndMetadata("labels", "name")),
			[]string{`StatusAndMetadata: cannot keep field "name"`},
		},
		"no status": {
			"Status needs the field", apis.Resource[corev1.Secret, corev1.SecretList]("secrets", apis.Status()),
			[]string{"Status: v1.Secret has no field Status", "Status: v1.Secret has no JSON field status"},
		},
		"wrong list": {
			"the list is of other objects", apis.Resource[fruit.Apple, corev1.SecretList]("apples"),
			[]string{"list v1.SecretList: its items are v1.Secret, not fruit.Apple"},
		},
		"versions": {
			"a version and a type once each", apple("apples", version, version,
				apis.DefaultVersion(func(*corev1.Secret) {})),
			[]string{`version "v1alpha1": defined twice`, `is the type of another version`, "DefaultVersion is for *v1.Secret"},
		},
		"sub-resources": {
			"a sub-resource once each", apple("apples", apis.Status(), apis.Subresource("status", none),
				apis.Subresource("a", none), apis.Subresource("a", none), apis.Subresource("B", none)),
			[]string{`sub-resource "status": an option already defines it`, `sub-resource "a": defined twice`, `sub-resource "B"`},
		},
		"verbs": {
			"patch comes with get and update", apple("apples", apis.Verbs("get", "update")),
			[]string{`verbs "get,update": not a supported set: use one of create,get,list,`},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := c.definition.Err()
			if (err == nil) != (len(c.want) == 0) {
				t.Fatalf("%s: %v", c.reason, err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: want %q in:\n%v", c.reason, want, err)
				}
			}
		})
	}
}

func TestRegisterConflict(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(fruit.GroupVersion().WithKind("Apple"), &corev1.Secret{})
	err := apis.Resource[fruit.Apple, fruit.AppleList]("apples").Register(scheme, fruit.GroupVersion())
	if err == nil || !strings.Contains(err.Error(), "is registered for *v1.Secret, not *fruit.Apple") {
		t.Errorf("got %v, and want an error where the scheme would panic", err)
	}
}

func TestProtobuf(t *testing.T) {
	t.Parallel()
	if !apis.Resource[corev1.Secret, corev1.SecretList]("secrets").Protobuf() {
		t.Error("Secret has protobuf methods")
	}
	if everything().Protobuf() {
		t.Error("Apple has no protobuf methods")
	}
}
