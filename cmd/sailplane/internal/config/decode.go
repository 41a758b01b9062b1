package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Server decodes the document, or returns everything that is wrong with it.
func (d *Document) Server() (*Server, error) {
	s := &Server{}
	w := walk{document: d}
	w.value(d.root, reflect.ValueOf(s).Elem(), "")
	if err := errors.Join(append(w.errs, d.err)...); err != nil {
		return nil, err
	}
	return s, nil
}

// walk decodes a document beside the Go types, so that errors know the line: types of
// Kubernetes say their names in json tags, and decoders of JSON know no lines.
type walk struct {
	document *Document
	errs     []error
}

func (w *walk) wrong(n *yaml.Node, field, format string, values ...any) {
	w.errs = append(w.errs, fmt.Errorf("%s: %s", w.document.place(n, field), fmt.Sprintf(format, values...)))
}

func (w *walk) value(n *yaml.Node, to reflect.Value, field string) {
	if n.Tag == "!!null" {
		return
	}
	if u, ok := to.Addr().Interface().(json.Unmarshaler); ok {
		w.leaf(n, u, field)
		return
	}
	switch to.Kind() {
	case reflect.Pointer:
		to.Set(reflect.New(to.Type().Elem()))
		w.value(n, to.Elem(), field)
	case reflect.Struct:
		w.fields(n, to, field)
	case reflect.Slice:
		w.list(n, to, field)
	case reflect.Map:
		w.mapping(n, to, field)
	default:
		w.scalar(n, to, field)
	}
}

// fields decodes a mapping into a struct.
func (w *walk) fields(n *yaml.Node, to reflect.Value, field string) {
	if n.Kind != yaml.MappingNode {
		w.wrong(n, field, "want fields: %s", strings.Join(names(to.Type()), ", "))
		return
	}
	seen := map[string]bool{}
	for i, key := range keys(n) {
		path := strings.TrimPrefix(field+"."+key.Value, ".")
		member := find(to, key.Value)
		switch {
		case seen[key.Value]:
			w.wrong(key, path, "given twice")
		case !member.IsValid():
			w.wrong(key, path, "unknown field: want one of %s", strings.Join(names(to.Type()), ", "))
		default:
			w.value(n.Content[2*i+1], member, path)
		}
		seen[key.Value] = true
	}
}

func (w *walk) list(n *yaml.Node, to reflect.Value, field string) {
	if n.Kind != yaml.SequenceNode {
		w.wrong(n, field, "want a list, such as [a, b]")
		return
	}
	to.Set(reflect.MakeSlice(to.Type(), len(n.Content), len(n.Content)))
	for i, c := range n.Content {
		w.value(c, to.Index(i), fmt.Sprintf("%s[%d]", field, i))
	}
}

func (w *walk) mapping(n *yaml.Node, to reflect.Value, field string) {
	if n.Kind != yaml.MappingNode {
		w.wrong(n, field, "want a mapping, such as {a: b}")
		return
	}
	to.Set(reflect.MakeMap(to.Type()))
	for i, key := range keys(n) {
		value := reflect.New(to.Type().Elem()).Elem()
		w.value(n.Content[2*i+1], value, field+"."+key.Value)
		to.SetMapIndex(reflect.ValueOf(key.Value).Convert(to.Type().Key()), value)
	}
}

// leaf decodes a type that decodes itself.
func (w *walk) leaf(n *yaml.Node, to json.Unmarshaler, field string) {
	text := []byte(strconv.Quote(n.Value))
	if n.Kind != yaml.ScalarNode {
		var plain any
		if err := n.Decode(&plain); err == nil {
			text, _ = json.Marshal(plain)
		}
	}
	if err := to.UnmarshalJSON(text); err == nil {
		return
	}
	want := "another value"
	switch to.(type) {
	case *metav1.Duration:
		want = "a duration, such as 5m or 36h"
	case *resource.Quantity:
		want = "a size, such as 128Mi"
	}
	w.wrong(n, field, "found %q, want %s", n.Value, want)
}

// scalar decodes a string, a number or a truth value.
func (w *walk) scalar(n *yaml.Node, to reflect.Value, field string) {
	want, ok := "", n.Kind == yaml.ScalarNode
	switch to.Kind() {
	case reflect.String:
		if want = "text: put it in quotes"; ok && n.Tag == "!!str" {
			to.SetString(n.Value)
			return
		}
	case reflect.Bool:
		if want = "true or false"; ok {
			if b, err := strconv.ParseBool(n.Value); err == nil {
				to.SetBool(b)
				return
			}
		}
	case reflect.Int, reflect.Int32, reflect.Int64:
		if want = "a whole number"; ok {
			if i, err := strconv.ParseInt(n.Value, 10, to.Type().Bits()); err == nil {
				to.SetInt(i)
				return
			}
		}
	case reflect.Float64:
		if want = "a number"; ok {
			if f, err := strconv.ParseFloat(n.Value, 64); err == nil {
				to.SetFloat(f)
				return
			}
		}
	default:
		want = "a field that can be read: this is a defect, please report it"
	}
	w.wrong(n, field, "found %q, want %s", n.Value, want)
}

// find returns the field of a struct with the name in JSON.
func find(v reflect.Value, name string) reflect.Value {
	for i := range v.NumField() {
		tag, inline := tagged(v.Type().Field(i))
		if inline {
			if member := find(v.Field(i), name); member.IsValid() {
				return member
			}
		} else if tag == name {
			return v.Field(i)
		}
	}
	return reflect.Value{}
}

// names are those of a struct's fields in JSON, sorted.
func names(t reflect.Type) []string {
	var all []string
	for i := range t.NumField() {
		if tag, inline := tagged(t.Field(i)); inline {
			all = append(all, names(t.Field(i).Type)...)
		} else if tag != "" && tag != "-" {
			all = append(all, tag)
		}
	}
	slices.Sort(all)
	return all
}

// tagged returns the name of a field in JSON, or that its own fields take its place.
func tagged(f reflect.StructField) (name string, inline bool) {
	name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name, name == "" && f.Anonymous && (options == "inline" || options == "")
}
