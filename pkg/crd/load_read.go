package crd

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// schemas are the OpenAPI schemas of the Go types that a CRD is made of, by name.
// They say nothing about union types, which are added here.
var schemas = sync.OnceValue(func() map[string]spec.Schema {
	all := map[string]spec.Schema{}
	for name, definition := range openapi.GetOpenAPIDefinitions(spec.MustCreateRef) {
		all[name] = definition.Schema
	}
	either := all[apiextensionsv1.JSONSchemaProps{}.OpenAPIModelName()]
	either.Items = &spec.SchemaOrArray{Schema: &spec.Schema{SchemaProps: either.SchemaProps}}
	either.Type = spec.StringOrArray{"object", "array"}
	all[apiextensionsv1.JSONSchemaPropsOrArray{}.OpenAPIModelName()] = either
	either.Type = spec.StringOrArray{"object", "boolean"}
	all[apiextensionsv1.JSONSchemaPropsOrBool{}.OpenAPIModelName()] = either
	return all
})

// typeByTag has the OpenAPI types by YAML tag.
var typeByTag = sync.OnceValue(func() map[string]string {
	return map[string]string{
		"!!map": "object", "!!seq": "array", "!!str": "string", "!!bool": "boolean", "!!int": "integer", "!!float": "number",
	}
})

// typeOf returns the OpenAPI type of a value, or the YAML tag if there is none. It
// gives a scalar the meaning that it has for kubectl, which is that of YAML 1.1:
// "yes" is a boolean, and dates are strings.
func typeOf(n *yaml.Node) string {
	var word bool
	switch tag := n.ShortTag(); {
	case tag == "!!timestamp":
		n.Tag = "!!str"
	case tag == "!!str" && n.Kind == yaml.ScalarNode && n.Style == 0 && len(n.Value) <= len("yes") && n.Decode(&word) == nil:
		n.Tag, n.Value = "!!bool", strconv.FormatBool(word)
	}
	return cmp.Or(typeByTag()[n.ShortTag()], n.ShortTag())
}

// read notes the lines of n, which stands at path, and of all fields below it. It
// reports what does not fit the schema, at every depth: the strict decoder of
// Kubernetes does not look below items and additionalProperties, and stops at the
// first value of a wrong type. It returns whether n is a value: null is one only
// where any type is.
func (o *object) read(n *yaml.Node, t spec.Schema, path string) (isValue bool) {
	if name := t.Ref.String(); name != "" {
		t = schemas()[name]
	}
	text := n.Value
	found := typeOf(n)
	fits := len(t.Type) == 0 || t.Type.Contains(found) || found == "!!null" || found == "integer" && t.Type.Contains("number")
	switch {
	case !fits:
		words := strings.NewReplacer("object", "an object", "array", "a list", "string", "a string",
			"boolean", "a boolean", "integer", "an integer", "number", "a number")
		message := words.Replace(fmt.Sprintf("expected %s, found %s", strings.Join(t.Type, " or "), found))
		o.problem(path, strings.TrimSuffix(message+" ("+text+")", " ()"))
	case found == "number" && strings.ContainsAny(text, "nN"):
		o.problem(path, "JSON has no number "+text)
	case n.Kind == yaml.MappingNode:
		o.readFields(n, t, path)
	case n.Kind == yaml.SequenceNode:
		var item spec.Schema
		if t.Items != nil {
			item = *t.Items.Schema
		}
		for i, value := range n.Content {
			at := path + "[" + strconv.Itoa(i) + "]"
			o.lines[at] = value.Line
			o.read(value, item, at)
		}
	}
	return found != "!!null" || len(t.Type) == 0
}

// readFields reads the fields of an object, and drops those without a value.
func (o *object) readFields(n *yaml.Node, t spec.Schema, path string) {
	var content []*yaml.Node
	first := map[string]int{}
	for pair := range slices.Chunk(n.Content, 2) {
		key, value := pair[0], pair[1]
		at := strings.TrimPrefix(path+"."+key.Value, ".")
		field, known := t.Properties[key.Value]
		if t.AdditionalProperties != nil {
			field = *t.AdditionalProperties.Schema
		}
		wrong := ""
		switch found := typeOf(key); {
		case found == "!!merge":
			at, field = path, spec.Schema{}
		case key.Kind != yaml.ScalarNode || found != "string":
			wrong = "the key is not a string: put it in quotes"
		case first[key.Value] > 0:
			wrong = fmt.Sprintf("duplicate field, first in line %d", o.before+first[key.Value])
		case !known && len(t.Properties) > 0:
			wrong = "unknown field"
			for name := range t.Properties {
				if strings.EqualFold(name, key.Value) {
					wrong += fmt.Sprintf(", did you mean %s?", name)
				}
			}
		default:
			first[key.Value], o.lines[at] = key.Line, key.Line
		}
		if wrong != "" {
			o.document.problem(key.Line, at, wrong)
			continue
		}
		if o.read(value, field, at) || len(t.Properties) == 0 {
			content = append(content, key, value)
		}
	}
	n.Content = content
}
