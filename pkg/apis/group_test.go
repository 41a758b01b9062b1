package apis_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"

	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit/v1alpha1"
)

func appleResource(options ...apis.Option) *apis.Definition {
	return apis.Resource[fruit.Apple, fruit.AppleList]("apples", append(options,
		apis.Version[v1alpha1.Apple, v1alpha1.AppleList]("v1alpha1", v1alpha1.ToHub, v1alpha1.FromHub))...)
}

func ExampleNewGroup() {
	fruits := apis.NewGroup(fruit.GroupVersion(), nil, nil,
		apis.Resource[fruit.Apple, fruit.AppleList]("apples", apis.Status()))
	var part controlplane.Part = fruits // for controlplane.Builder.With
	fmt.Println(part.Install(&controlplane.Plan{}), fruits.API().GroupVersions())
	// Output: <nil> [fruit.example.com/v1]
}

func TestInstall(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		group  *apis.Group
		want   []string
	}{
		"good": {"nothing to say", apis.NewGroup(fruit.GroupVersion(), nil, nil, appleResource()), nil},
		"empty": {
			"all at once", apis.NewGroup(schema.GroupVersion{Group: "a"}, nil, nil),
			[]string{"has no version", "has no resources"},
		},
		"twice": {
			"names and kinds are unique", apis.NewGroup(fruit.GroupVersion(), nil, nil, appleResource(), appleResource()),
			[]string{`resource "apples": defined twice`, "has the kind Apple"},
		},
		"hub as spoke": {
			"the hub is served already",
			apis.NewGroup(schema.GroupVersion{Group: "a", Version: "v1alpha1"}, nil, nil, appleResource()),
			[]string{`resource "apples": version "v1alpha1" is already the hub`},
		},
		"definition": {
			"what is wrong with a resource", apis.NewGroup(fruit.GroupVersion(), nil, nil, appleResource(apis.Kind("x"))),
			[]string{`resource "apples": kind "x"`},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := c.group.Install(&controlplane.Plan{})
			if (err == nil) != (len(c.want) == 0) {
				t.Fatalf("%s: %v", c.reason, err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: want %q in %v", c.reason, want, err)
				}
			}
		})
	}
}

func TestAPI(t *testing.T) {
	t.Parallel()
	g := apis.NewGroup(fruit.GroupVersion(), func(s *runtime.Scheme) error {
		s.AddKnownTypes(fruit.GroupVersion(), &fruit.Apple{}, &fruit.AppleList{}, &corev1.Secret{})
		return nil
	}, nil, appleResource())
	scheme, err := g.API().Scheme()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"v1", "v1alpha1"}, g.API().Versions()); diff != "" {
		t.Error(diff)
	}
	for _, version := range []string{"v1", "v1alpha1", runtime.APIVersionInternal} {
		for _, kind := range []string{"Apple", "AppleList"} {
			gvk := schema.GroupVersionKind{Group: fruit.GroupVersion().Group, Version: version, Kind: kind}
			if !scheme.Recognizes(gvk) {
				t.Errorf("%s is not registered", gvk)
			}
		}
	}
	if again, _ := g.API().Scheme(); again != scheme {
		t.Error("the scheme is made twice")
	}
}
