package crd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	apiextensionsserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// The apiVersion and kind of a CRD.
const (
	crdAPIVersion = apiextensionsv1.GroupName + "/v1"
	crdKind       = "CustomResourceDefinition"
)

// object is one object of a document.
type object struct {
	*document  `yaml:"-"`
	APIVersion string    `yaml:"apiVersion"`
	Kind       string    `yaml:"kind"`
	Items      yaml.Node `yaml:"items"` // of a list
	root       *yaml.Node
	lines      map[string]int // by the path of a field, such as spec.versions[0].name
}

// isOther tells whether the object belongs to another API.
func (o *object) isOther() bool {
	group, _, _ := strings.Cut(o.APIVersion, "/")
	return o.Kind != "" && o.Kind != crdKind && o.APIVersion != "" && group != apiextensionsv1.GroupName
}

// line returns the line of the field at path, or of the last one on the way that
// exists: a missing field is reported where it should stand.
func (o *object) line(path string) int {
	for path != "" && o.lines[path] == 0 {
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return cmp.Or(o.lines[path], o.root.Line)
}

// problem reports what is wrong with the field at path.
func (o *object) problem(path, message string) { o.document.problem(o.line(path), path, message) }

// definition checks the CRD that the object is, and returns its name and body.
func (o *object) definition() (name string, body []byte) {
	problems := len(o.problems)
	if o.check(); len(o.problems) > problems {
		return "", nil
	}
	var content map[string]any
	err := o.root.Decode(&content)
	if err == nil {
		// The server writes these: a file has them when it was dumped from a server.
		delete(content, "status")
		for _, field := range [...]string{"creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"} {
			unstructured.RemoveNestedField(content, "metadata", field)
		}
		body, err = json.Marshal(content)
	}
	if err != nil {
		undecodable[any](o.document, err)
		return "", nil
	}
	return o.validate(body), body
}

// check reads the object and reports what makes it no CRD.
func (o *object) check() {
	o.read(o.root, schemas()[o.APIVersion+" "+o.Kind], "")
	for _, row := range [...][4]string{
		{"apiVersion", o.APIVersion, crdAPIVersion, ": convert other versions to it"},
		{"kind", o.Kind, crdKind, ""},
	} {
		switch field, found, want := row[0], row[1], row[2]; found {
		case want:
		case "":
			o.problem("", fmt.Sprintf("%s is missing: write %[1]s: %s", field, want))
		default:
			o.problem(field, fmt.Sprintf("expected %s, found %q%s", want, found, row[3]))
		}
	}
}

// validate checks a CRD as the server will when it is created, CEL rules aside,
// and returns its name.
func (o *object) validate(body []byte) (name string) {
	// Compiling the rules takes ten times as long as everything else here, and the
	// server does it again. The decoder leaves out what it does not know.
	body = bytes.ReplaceAll(body, []byte(`"x-kubernetes-validations":`), []byte(`"":`))
	var crd apiextensions.CustomResourceDefinition
	if err := runtime.DecodeInto(apiextensionsserver.Codecs.UniversalDecoder(), body, &crd); err != nil {
		path := "" // read has checked all but numbers out of range and texts that are no base64
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			path = wrong.Field
		}
		o.problem(path, err.Error())
		return ""
	}
	// Only the CEL rules, which are gone, could take long enough to cancel them.
	for _, e := range validation.ValidateCustomResourceDefinition(context.Background(), &crd) {
		switch reflect.ValueOf(e.BadValue).Kind() {
		case reflect.Struct, reflect.Map, reflect.Slice, reflect.Pointer:
			e.BadValue = field.OmitValueType{} // it stands in the file, and a schema fills a screen
		}
		if !strings.HasPrefix(e.Field, "status.") { // the server writes it
			o.problem(published(e.Field), e.ErrorBody())
		}
	}
	return crd.Name
}

// published turns a path of the internal form of a CRD, which errors of
// validation use, into one of the published form: fields that all versions share
// are in the former only once, above the versions. Names in brackets become fields.
func published(path string) string {
	path = regexp.MustCompile(`\[([^\]]*[^\]0-9][^\]]*)\]`).ReplaceAllString(path, ".$1")
	shared := regexp.MustCompile(`^spec\.(validation|subresources|additionalPrinterColumns|selectableFields|version)\b`)
	path = shared.ReplaceAllString(path, "spec.versions[0].$1")
	path = strings.Replace(path, "spec.versions[0].validation", "spec.versions[0].schema", 1)
	return strings.Replace(path, "spec.versions[0].version", "spec.versions[0].name", 1)
}

// schemas are the OpenAPI schemas of the Go types that a CRD is made of, by name,
// and that of a CRD by apiVersion and kind too. Upstream's say nothing about union
// types, which are added here.
var schemas = sync.OnceValue(func() map[string]spec.Schema {
	all := map[string]spec.Schema{}
	for name, definition := range openapi.GetOpenAPIDefinitions(spec.MustCreateRef) {
		all[name] = definition.Schema
	}
	all[crdAPIVersion+" "+crdKind] = all[apiextensionsv1.CustomResourceDefinition{}.OpenAPIModelName()]
	either := all[apiextensionsv1.JSONSchemaProps{}.OpenAPIModelName()]
	either.Items = &spec.SchemaOrArray{Schema: &spec.Schema{SchemaProps: either.SchemaProps}}
	either.Type = spec.StringOrArray{"object", "array"}
	all[apiextensionsv1.JSONSchemaPropsOrArray{}.OpenAPIModelName()] = either
	either.Type = spec.StringOrArray{"object", "boolean"}
	all[apiextensionsv1.JSONSchemaPropsOrBool{}.OpenAPIModelName()] = either
	return all
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
	types := map[string]string{
		"!!map": "object", "!!seq": "array", "!!str": "string", "!!bool": "boolean", "!!int": "integer", "!!float": "number",
	}
	return cmp.Or(types[n.ShortTag()], n.ShortTag())
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
