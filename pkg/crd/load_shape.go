package crd

import (
	"reflect"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// valueKind is a kind of YAML value, in the words of an error message.
type valueKind string

const (
	kindObject  valueKind = "an object"
	kindList    valueKind = "a list"
	kindString  valueKind = "a string"
	kindInteger valueKind = "an integer"
	kindNumber  valueKind = "a number"
	kindBoolean valueKind = "a boolean"
	kindNull    valueKind = "null"
	kindUnknown valueKind = "a value with an unknown tag"
)

// shape is what a field of a CRD may hold. A nil shape is any JSON.
type shape struct {
	kinds  []valueKind
	fields map[string]*shape // of an object with fixed fields; nil: any key
	elem   *shape            // of the values of an object with any key
	item   *shape            // of the items of a list

	// owned are the fields of an object that the server writes and a file only
	// has when it was dumped from one. They are not sent.
	owned []string
}

func (s *shape) allows(k valueKind) bool {
	if s == nil {
		return true
	}
	for _, allowed := range s.kinds {
		if k == allowed || k == kindInteger && allowed == kindNumber {
			return true
		}
	}
	return false
}

// expected says what the shape allows.
func (s *shape) expected() string {
	words := make([]string, len(s.kinds))
	for i, k := range s.kinds {
		words[i] = string(k)
	}
	return strings.Join(words, " or ")
}

// crdShape is the shape of a CRD, read off its Go type. The upstream decoder
// checks the same, but not below items and additionalProperties, whose types
// decode themselves leniently, and without knowing lines.
var crdShape = sync.OnceValue(func() *shape {
	s := shapeOf(reflect.TypeFor[apiextensionsv1.CustomResourceDefinition](), map[reflect.Type]*shape{})
	s.owned = []string{"status"}
	s.fields["metadata"].owned = []string{
		"creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid",
	}
	return s
})

// shapeOf reads the shape off a Go type. Schemas hold schemas: known has the
// shapes that are begun.
func shapeOf(t reflect.Type, known map[reflect.Type]*shape) *shape {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if s, found := known[t]; found {
		return s
	}
	s := &shape{}
	known[t] = s
	schema := func() *shape { return shapeOf(reflect.TypeFor[apiextensionsv1.JSONSchemaProps](), known) }
	switch t {
	case reflect.TypeFor[apiextensionsv1.JSON](), reflect.TypeFor[metav1.FieldsV1]():
		known[t] = nil
		return nil
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[[]byte]():
		s.kinds = []valueKind{kindString}
		return s
	case reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrBool]():
		s.kinds, s.fields = []valueKind{kindObject, kindBoolean}, schema().fields
		return s
	case reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrArray]():
		s.kinds, s.fields, s.item = []valueKind{kindObject, kindList}, schema().fields, schema()
		return s
	case reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrStringArray]():
		s.kinds, s.fields, s.item = []valueKind{kindObject, kindList}, schema().fields, &shape{kinds: []valueKind{kindString}}
		return s
	}
	switch t.Kind() {
	case reflect.Struct:
		s.kinds, s.fields = []valueKind{kindObject}, map[string]*shape{}
		s.addFields(t, known)
	case reflect.Map:
		s.kinds, s.elem = []valueKind{kindObject}, shapeOf(t.Elem(), known)
	case reflect.Slice:
		s.kinds, s.item = []valueKind{kindList}, shapeOf(t.Elem(), known)
	case reflect.String:
		s.kinds = []valueKind{kindString}
	case reflect.Bool:
		s.kinds = []valueKind{kindBoolean}
	case reflect.Float32, reflect.Float64:
		s.kinds = []valueKind{kindNumber}
	default:
		s.kinds = []valueKind{kindInteger}
	}
	return s
}

// addFields adds the JSON fields of a struct, those of inlined structs too.
func (s *shape) addFields(t reflect.Type, known map[reflect.Type]*shape) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case name == "" && f.Anonymous:
			s.addFields(f.Type, known)
		default:
			s.fields[name] = shapeOf(f.Type, known)
		}
	}
}
