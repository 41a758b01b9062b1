package crd

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxPath bounds the length of a field's path: only a mistake is nested so deep.
const maxPath = 10_000

// object is one object of a document.
type object struct {
	*document
	header
	root   *yaml.Node
	lines  map[string]int // by the path of a field, such as spec.versions[0].name
	fields map[reflect.Type]map[string]reflect.Type
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
func (o *object) problem(path, message string) {
	o.document.problem(o.line(path), path, message)
}

// definition decodes and checks the CRD that the object is.
func (o *object) definition() (name string, body []byte) {
	const kind = "CustomResourceDefinition"
	served := apiextensionsv1.SchemeGroupVersion.String()
	if o.Kind != kind || o.APIVersion != served {
		o.read(o.root, reflect.TypeFor[any](), "") // for the lines
	}
	switch {
	case o.Kind != kind:
		o.problem("kind", fmt.Sprintf("found %q: only a %s can be given", o.Kind, kind))
		return "", nil
	case o.APIVersion != served:
		o.problem("apiVersion", fmt.Sprintf("found %q: expected %s, convert other versions to it", o.APIVersion, served))
		return "", nil
	}
	problems := len(o.problems)
	if o.readCRD(); len(o.problems) > problems {
		return "", nil
	}
	var content map[string]any
	if err := o.root.Decode(&content); err != nil {
		o.problem("", strings.TrimPrefix(err.Error(), "yaml: "))
		return "", nil
	}
	// The server writes these: a file has them when it was dumped from one.
	delete(content, "status")
	if metadata, ok := content["metadata"].(map[string]any); ok {
		for _, field := range []string{"creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"} {
			delete(metadata, field)
		}
	}
	body, err := json.Marshal(content)
	if err != nil {
		o.problem("", err.Error())
		return "", nil
	}
	return o.validate(content), body
}

// readCRD reads the object as a CRD.
func (o *object) readCRD() {
	o.read(o.root, reflect.TypeFor[apiextensionsv1.CustomResourceDefinition](), "")
}

// read notes the lines of n, which stands at path, and of all fields below it. It
// reports what does not fit the Go type, at every depth: the strict decoder of
// Kubernetes does not look below items and additionalProperties, and stops at the
// first value of a wrong type.
func (o *object) read(n *yaml.Node, t reflect.Type, path string) {
	t = typeOf(n, t)
	text := n.Value
	readScalar(n)
	want, found := tagOf(t), n.ShortTag()
	fits := want == "" || found == want || found == "!!null" || found == "!!int" && want == "!!float"
	switch {
	case len(path) > maxPath:
		o.problem("", "nested too deep")
	case !fits:
		names := strings.NewReplacer("!!map", "an object", "!!seq", "a list", "!!str", "a string",
			"!!bool", "a boolean", "!!int", "an integer", "!!float", "a number")
		o.problem(path, strings.TrimSuffix(names.Replace(fmt.Sprintf("expected %s, found %s (", want, found))+text+")", " ()"))
	case found == "!!float" && strings.ContainsAny(text, "nN"):
		o.problem(path, "JSON has no number "+text)
	case n.Kind == yaml.MappingNode:
		o.readFields(n, t, path)
	case n.Kind == yaml.SequenceNode:
		for i, item := range n.Content {
			at := path + "[" + strconv.Itoa(i) + "]"
			o.lines[at] = item.Line
			o.read(item, elem(t), at)
		}
	}
}

// readFields reads the fields of an object, and drops those that cannot be.
func (o *object) readFields(n *yaml.Node, t reflect.Type, path string) {
	var content []*yaml.Node
	first := map[string]int{}
	for pair := range slices.Chunk(n.Content, 2) {
		key, value := pair[0], pair[1]
		at := strings.TrimPrefix(path+"."+key.Value, ".")
		readScalar(key)
		field := elem(t)
		known := true
		if t.Kind() == reflect.Struct {
			field, known = o.fieldsOf(t)[key.Value]
		}
		switch tag := key.ShortTag(); {
		case tag == "!!merge":
			at, field = path, reflect.TypeFor[any]()
		case key.Kind != yaml.ScalarNode || tag != "!!str":
			o.document.problem(key.Line, at, "the key is no string: put it in quotes")
			continue
		case first[key.Value] > 0:
			o.document.problem(key.Line, at, fmt.Sprintf("duplicate field, first in line %d", o.before+first[key.Value]))
			continue
		case !known:
			o.document.problem(key.Line, at, "unknown field"+o.suggestion(t, key.Value))
			continue
		default:
			first[key.Value], o.lines[at] = key.Line, key.Line
		}
		o.read(value, field, at)
		// A field without a value is one that is not set, except where null is one.
		if t.Kind() != reflect.Struct || value.ShortTag() != "!!null" || typeOf(value, field).Kind() == reflect.Interface {
			content = append(content, key, value)
		}
	}
	n.Content = content
}

// fieldsOf returns the types of the fields of a struct.
func (o *object) fieldsOf(t reflect.Type) map[string]reflect.Type {
	if fields, found := o.fields[t]; found {
		return fields
	}
	fields := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			fields[name] = f.Type
		} else {
			maps.Copy(fields, o.fieldsOf(f.Type))
		}
	}
	o.fields[t] = fields
	return fields
}

// suggestion names the field that only differs in case, the usual slip.
func (o *object) suggestion(t reflect.Type, name string) string {
	for field := range o.fieldsOf(t) {
		if strings.EqualFold(field, name) {
			return fmt.Sprintf(", did you mean %s?", field)
		}
	}
	return ""
}

// typeOf is the type that n has where t is expected: any where that can hold
// everything, and one of the alternatives of the types that decode themselves.
func typeOf(n *yaml.Node, t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch reflect.Zero(t).Interface().(type) {
	case apiextensionsv1.JSONSchemaPropsOrBool:
		if n.Kind == yaml.ScalarNode {
			return reflect.TypeFor[bool]()
		}
		return reflect.TypeFor[apiextensionsv1.JSONSchemaProps]()
	case apiextensionsv1.JSONSchemaPropsOrArray:
		if n.Kind == yaml.SequenceNode {
			return reflect.TypeFor[[]apiextensionsv1.JSONSchemaProps]()
		}
		return reflect.TypeFor[apiextensionsv1.JSONSchemaProps]()
	case metav1.Time, []byte:
		return reflect.TypeFor[string]()
	case apiextensionsv1.JSON, metav1.FieldsV1, apiextensionsv1.JSONSchemaPropsOrStringArray: // the last one is forbidden
		return reflect.TypeFor[any]()
	}
	return t
}

// elem is the type of the values in a map or list of type t.
func elem(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Map || t.Kind() == reflect.Slice {
		return t.Elem()
	}
	return t
}

// tagOf is the YAML tag of the values of a type, "" for any.
func tagOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Interface:
		return ""
	case reflect.Struct, reflect.Map:
		return "!!map"
	case reflect.Slice:
		return "!!seq"
	case reflect.String:
		return "!!str"
	case reflect.Bool:
		return "!!bool"
	case reflect.Float64:
		return "!!float"
	default:
		return "!!int"
	}
}

// readScalar gives a scalar the meaning that it has for kubectl, which is that of
// YAML 1.1: "yes" is a boolean, and dates are strings.
func readScalar(n *yaml.Node) {
	switch tag := n.ShortTag(); {
	case tag == "!!timestamp":
		n.Tag = "!!str"
	case tag != "!!str" || n.Style != 0 || n.Kind != yaml.ScalarNode || len(n.Value) > len("yes"):
	case slices.Contains([]string{"y", "Y", "yes", "Yes", "YES", "on", "On", "ON"}, n.Value):
		n.Tag, n.Value = "!!bool", "true"
	case slices.Contains([]string{"n", "N", "no", "No", "NO", "off", "Off", "OFF"}, n.Value):
		n.Tag, n.Value = "!!bool", "false"
	}
}
