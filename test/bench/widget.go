package main

import (
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// definition is a CRD of widgets in a group of its own, told apart by name.
type definition string

func (d definition) group() string { return string(d) + ".bench.example.com" }

func (d definition) resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: d.group(), Version: "v1", Resource: "widgets"}
}

// crd has a schema of the usual kind: nested, with defaults, lists and a status.
func (d definition) crd() *apiextensions.CustomResourceDefinition {
	text := apiextensions.JSONSchemaProps{Type: "string", Description: "A few words about the widget."}
	part := apiextensions.JSONSchemaProps{
		Type: "object", Required: []string{"name"},
		Properties: map[string]apiextensions.JSONSchemaProps{"name": text, "material": text, "count": {Type: "integer"}},
	}
	spec := apiextensions.JSONSchemaProps{
		Type: "object", Required: []string{"size"},
		Properties: map[string]apiextensions.JSONSchemaProps{
			"size":   {Type: "integer", Minimum: new(1.0), Maximum: new(1000.0)},
			"colour": {Type: "string", Default: &apiextensions.JSON{Raw: []byte(`"green"`)}},
			"notes":  text,
			"parts":  {Type: "array", Items: &apiextensions.JSONSchemaPropsOrArray{Schema: &part}},
		},
	}
	status := apiextensions.JSONSchemaProps{Type: "object", Properties: map[string]apiextensions.JSONSchemaProps{"phase": text}}
	return &apiextensions.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiextensions.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: "widgets." + d.group()},
		Spec: apiextensions.CustomResourceDefinitionSpec{
			Group: d.group(), Scope: apiextensions.NamespaceScoped,
			Names: apiextensions.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
			Versions: []apiextensions.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensions.CustomResourceValidation{OpenAPIV3Schema: &apiextensions.JSONSchemaProps{
					Type:       "object",
					Properties: map[string]apiextensions.JSONSchemaProps{"spec": spec, "status": status},
				}},
				Subresources: &apiextensions.CustomResourceSubresources{Status: &apiextensions.CustomResourceSubresourceStatus{}},
			}},
		},
	}
}

// object is a widget of a definition; with its parts it is about 1 KiB.
func object(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": definition(name).group() + "/v1",
		"kind":       "Widget",
		"metadata":   map[string]any{"name": "lever", "namespace": metav1.NamespaceDefault},
		"spec": map[string]any{
			"size":  int64(42),
			"notes": value("a lever"),
			"parts": []any{
				map[string]any{"name": "arm", "material": "steel", "count": int64(1)},
				map[string]any{"name": "screw", "count": int64(4)},
			},
		},
	}}
}
