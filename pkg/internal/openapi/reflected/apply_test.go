package reflected_test

import (
	"maps"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"

	apiextensionsopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"

	"github.com/sailplane-dev/sailplane/pkg/internal/openapi/reflected"
)

// Basket is an API object as an author writes it.
type Basket struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec BasketSpec `json:"spec"`
}

// BasketSpec has a list that merges, one that does not, and one that merges by two keys.
type BasketSpec struct {
	Fruits []Fruit           `json:"fruits,omitempty" patchStrategy:"merge" patchMergeKey:"name"`
	Owners []string          `json:"owners,omitempty"`
	Ports  []Port            `json:"ports,omitempty"`
	Colour colour            `json:"colour,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	Params any               `json:"params,omitempty"`
}

// Fruit is told apart by its name.
type Fruit struct {
	Name  string       `json:"name"`
	Count int32        `json:"count"`
	Taken *metav1.Time `json:"taken,omitempty"`
}

// Port is told apart by both.
type Port struct {
	Port     int32  `json:"port"`
	Protocol string `json:"protocol"`
	Name     string `json:"name,omitempty"`
}

func (b *Basket) DeepCopyObject() runtime.Object {
	out := *b
	b.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Fruits = append([]Fruit(nil), b.Spec.Fruits...)
	out.Spec.Owners = append([]string(nil), b.Spec.Owners...)
	out.Spec.Ports = append([]Port(nil), b.Spec.Ports...)
	out.Spec.Labels = maps.Clone(b.Spec.Labels)
	out.Spec.Params = runtime.DeepCopyJSONValue(b.Spec.Params)
	return &out
}

func basketVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "example.com", Version: "v1"}
}

func basketScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(basketVersion(), &Basket{})
	metav1.AddToGroupVersion(scheme, basketVersion())
	return scheme
}

// basketModels are the schemas a server builds for Basket with the published builder.
func basketModels(t *testing.T, scheme *runtime.Scheme) map[string]*spec.Schema {
	t.Helper()
	base := apiextensionsopenapi.GetOpenAPIDefinitions
	get, err := reflected.Build(base, types(&Basket{}),
		reflected.Enum(red, green),
		reflected.ListType(reflect.TypeFor[BasketSpec](), "Ports", "map", "port", "protocol"))
	if err != nil {
		t.Fatal(err)
	}
	models, err := builder3.BuildOpenAPIDefinitionsForResources(&common.OpenAPIV3Config{
		GetDefinitions: func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
			all := base(ref)
			maps.Copy(all, get(ref))
			return all
		},
		GetDefinitionName: reflected.Namer(openapi.NewDefinitionNamer(scheme).GetDefinitionName),
	}, util.GetCanonicalTypeName(&Basket{}))
	if err != nil {
		t.Fatal(err)
	}
	return models
}

func TestBuilderGivesRootsTheirKind(t *testing.T) {
	t.Parallel()
	scheme := basketScheme()
	models := basketModels(t, scheme)
	name, err := scheme.ToOpenAPIDefinitionName(basketVersion().WithKind("Basket"))
	if err != nil {
		t.Fatal(err)
	}
	model, ok := models[name]
	if !ok {
		t.Fatalf("no model %s, where a scheme looks for it", name)
	}
	want := []any{map[string]any{"group": "example.com", "version": "v1", "kind": "Basket"}}
	if diff := cmp.Diff(want, model.Extensions["x-kubernetes-group-version-kind"]); diff != "" {
		t.Errorf("the builder's own extension (-want +got):\n%s", diff)
	}
}

func TestServerSideApply(t *testing.T) {
	t.Parallel()
	scheme := basketScheme()
	converter, err := managedfields.NewTypeConverter(basketModels(t, scheme), false)
	if err != nil {
		t.Fatal(err)
	}
	kind := basketVersion().WithKind("Basket")
	manager, err := managedfields.NewDefaultFieldManager(
		converter, scheme, scheme, scheme, kind, basketVersion(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	apply := func(live runtime.Object, who string, spec map[string]any) runtime.Object {
		t.Helper()
		merged, err := manager.Apply(live, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Basket", "metadata": map[string]any{"name": "b"}, "spec": spec,
		}}, who, false)
		if err != nil {
			t.Fatalf("%s: %v", who, err)
		}
		return merged
	}

	var live runtime.Object = &Basket{
		TypeMeta:   metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Basket"},
		ObjectMeta: metav1.ObjectMeta{Name: "b"},
	}
	live = apply(live, "ann", map[string]any{
		"fruits": []any{map[string]any{"name": "apple", "count": int64(1)}, map[string]any{"name": "kiwi", "count": int64(9)}},
		"ports":  []any{map[string]any{"port": int64(53), "protocol": "TCP"}},
		"owners": []any{"ann"},
		"params": map[string]any{"deep": []any{int64(1), "two"}},
	})
	live = apply(live, "bob", map[string]any{
		"fruits": []any{map[string]any{"name": "pear", "count": int64(2)}},
		"ports":  []any{map[string]any{"port": int64(53), "protocol": "UDP", "name": "dns"}},
		"labels": map[string]any{"size": "big"},
	})
	live = apply(live, "ann", map[string]any{
		"fruits": []any{map[string]any{"name": "apple", "count": int64(3)}},
		"ports":  []any{map[string]any{"port": int64(53), "protocol": "TCP"}},
		"params": "any value",
	})

	got, ok := live.(*Basket)
	if !ok {
		t.Fatalf("got a %T", live)
	}
	want := BasketSpec{
		Fruits: []Fruit{{Name: "apple", Count: 3}, {Name: "pear", Count: 2}},
		Ports:  []Port{{Port: 53, Protocol: "TCP"}, {Port: 53, Protocol: "UDP", Name: "dns"}},
		Labels: map[string]string{"size": "big"},
		Params: "any value",
	}
	if diff := cmp.Diff(want, got.Spec); diff != "" {
		t.Errorf("ann's kiwi and owners are gone, bob's pear stays (-want +got):\n%s", diff)
	}

	// A change by update, from the typed object, takes the field from its applier.
	changed := got.DeepCopyObject().(*Basket)
	changed.Spec.Fruits[0].Count = 7
	changed.Spec.Fruits[0].Taken = &metav1.Time{}
	updated, err := manager.Update(got, changed, "cat")
	if err != nil {
		t.Fatal(err)
	}
	_, err = manager.Apply(updated, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Basket", "metadata": map[string]any{"name": "b"},
		"spec": map[string]any{"fruits": []any{map[string]any{"name": "apple", "count": int64(4)}}},
	}}, "ann", false)
	if err == nil {
		t.Error("no conflict about the apple's count, which cat has changed")
	}
}
