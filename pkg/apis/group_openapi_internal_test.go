package apis

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
)

const appleName = "github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit.Apple"

func TestOpenAPI(t *testing.T) {
	t.Parallel()
	generated := func(common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		return map[string]common.OpenAPIDefinition{appleName: {Schema: spec.Schema{SchemaProps: spec.SchemaProps{Description: "generated"}}}}
	}
	cases := map[string]struct {
		reason      string
		addToScheme func(*runtime.Scheme) error
		definitions common.GetOpenAPIDefinitions
		want        map[string]string
	}{
		"reflected": {
			reason: "without definitions they come from the Go types, over those of meta/v1",
			want:   map[string]string{appleName: "", appleName + "List": "", "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": ""},
		},
		"generated": {
			reason: "definitions that are given are used, with those of meta/v1 added", definitions: generated,
			want: map[string]string{appleName: "generated", "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": ""},
		},
		"more kinds": {
			reason: "kinds that only addToScheme registers have definitions too",
			addToScheme: func(s *runtime.Scheme) error {
				s.AddKnownTypes(fruit.GroupVersion(), &basket{})
				return nil
			},
			want: map[string]string{appleName: "", "github.com/sailplane-dev/sailplane/pkg/apis.basket": ""},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewGroup(fruit.GroupVersion(), c.addToScheme, c.definitions, Resource[fruit.Apple, fruit.AppleList]("apples"))
			get, err := g.openAPI()
			if err != nil {
				t.Fatal(err)
			}
			all := get(func(path string) spec.Ref { return spec.MustCreateRef(path) })
			for name, description := range c.want {
				d, ok := all[name]
				if !ok || (description != "" && d.Schema.Description != description) {
					t.Errorf("%s: %s: found %t with description %q", c.reason, name, ok, d.Schema.Description)
				}
			}
		})
	}
}

// basket is a kind of no resource.
type basket struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Apples int `json:"apples,omitempty"`
}

func (b *basket) DeepCopyObject() runtime.Object {
	out := *b
	return &out
}
