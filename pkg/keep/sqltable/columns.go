package sqltable

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sailplane-dev/sailplane/pkg/keep"
)

// kind is what values a column has.
type kind int

const (
	text kind = iota
	integer
	float
	boolean
	document // JSON
)

// column is a column whose field was found in the type.
type column struct {
	name string
	path []string
	kind kind
	// place is where the field is in the type.
	place place
}

// reserved are the columns that every table has.
func reserved() []string {
	return []string{"namespace", "name", "resource_version", "object", uidColumn, createdColumn}
}

const (
	uidColumn     = "uid"
	createdColumn = "created"
)

// columnsOf finds the columns of a type, after those that every object has.
func columnsOf(t reflect.Type, wanted []Column) ([]column, error) {
	if wanted == nil {
		wanted = scalarsOf(t)
	}
	all := []column{
		{name: uidColumn, path: []string{"metadata", "uid"}},
		{name: createdColumn, path: []string{"metadata", "creationTimestamp"}},
	}
	taken := reserved()
	var errs []error
	for _, w := range wanted {
		path := strings.Split(w.Path, ".")
		field, err := fieldOf(t, path)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("column %q: field %s of %s: %w", w.Name, w.Path, t, err))
		case !isName(w.Name):
			errs = append(errs, fmt.Errorf("column %q: want lower-case letters, digits and underscores, at most %d", w.Name, maxName))
		case slices.Contains(taken, w.Name):
			errs = append(errs, fmt.Errorf("column %q: there is another one of the name", w.Name))
		case slices.ContainsFunc(all, func(c column) bool { return isWithin(c.path, path) || isWithin(path, c.path) }),
			w.Path == "metadata.name", w.Path == "metadata.namespace", w.Path == "metadata.resourceVersion", len(path) < 2:
			errs = append(errs, fmt.Errorf("column %q: field %s is kept elsewhere already", w.Name, w.Path))
		default:
			taken = append(taken, w.Name)
			all = append(all, column{w.Name, path, kindOf(field), placeOf(t, path)})
		}
	}
	return all, errors.Join(errs...)
}

// isWithin tells whether a path is that of a field in another one.
func isWithin(path, of []string) bool {
	return len(path) >= len(of) && slices.Equal(path[:len(of)], of)
}

const maxName = 40

func isName(name string) bool {
	return len(name) <= maxName && regexp.MustCompile(`^[a-z_][a-z0-9_]*$`).MatchString(name)
}

// scalarsOf are the columns for the strings, numbers and booleans of spec.
func scalarsOf(t reflect.Type) []Column {
	spec, err := fieldOf(t, []string{"spec"})
	if err != nil || spec.Kind() != reflect.Struct {
		return nil
	}
	var all []Column
	for _, f := range reflect.VisibleFields(spec) {
		json := jsonName(f)
		name := snake(json)
		if json == "" || slices.Contains(reserved(), name) || !isName(name) || len(f.Index) > 1 {
			continue
		}
		if kindOf(f.Type) != document {
			all = append(all, Column{Name: name, Path: "spec." + json})
		}
	}
	return all
}

// snake writes "assetTag" as "asset_tag".
func snake(name string) string {
	return strings.ToLower(regexp.MustCompile(`([a-z0-9])([A-Z])`).ReplaceAllString(name, "${1}_${2}"))
}

// jsonName is the name of a field in JSON; empty if it has none of its own.
func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if !f.IsExported() || name == "-" || name == "" && f.Anonymous {
		return ""
	}
	if name == "" {
		return f.Name
	}
	return name
}

// fieldOf is the type of the field at a path.
func fieldOf(t reflect.Type, path []string) (reflect.Type, error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if len(path) == 0 {
		return t, nil
	}
	switch t.Kind() {
	case reflect.Map:
		return fieldOf(t.Elem(), path[1:])
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(t) {
			if jsonName(f) == path[0] {
				return fieldOf(f.Type, path[1:])
			}
		}
	default:
	}
	return nil, fmt.Errorf("there is no %q", path[0])
}

// kindOf is the kind of column for a type.
func kindOf(t reflect.Type) kind {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	p := reflect.New(t).Interface()
	if _, own := p.(json.Marshaler); own {
		// Times and quantities say that they are strings.
		described, _ := p.(interface{ OpenAPISchemaType() []string })
		formatted, _ := p.(interface{ OpenAPISchemaFormat() string })
		isString := described != nil && slices.Equal(described.OpenAPISchemaType(), []string{"string"})
		if isString && (formatted == nil || formatted.OpenAPISchemaFormat() != "int-or-string") {
			return text
		}
		return document
	}
	switch t.Kind() {
	case reflect.String:
		return text
	case reflect.Bool:
		return boolean
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint8, reflect.Uint16, reflect.Uint32:
		return integer
	case reflect.Float32, reflect.Float64:
		return float
	default:
		return document
	}
}

// valuesOf are what is written for an object: its JSON without the fields that have columns, and
// these.
func (s *statements) valuesOf(object any) (key keep.Key, values []any, err error) {
	data, err := json.Marshal(object)
	if err != nil {
		return key, nil, err
	}
	all := fields{}
	if err := json.Unmarshal(data, &all); err != nil {
		return key, nil, err
	}
	for name, into := range map[string]*string{"namespace": &key.Namespace, "name": &key.Name} {
		if value := all.take([]string{"metadata", name}); value != nil {
			err = errors.Join(err, json.Unmarshal(value, into))
		}
	}
	if key.Name == "" {
		return key, nil, errors.Join(err, fmt.Errorf("the JSON of a %T has no metadata.name", object))
	}
	all.take([]string{"metadata", "resourceVersion"})
	values = []any{nil}
	for _, c := range s.columns {
		value, valueErr := c.value(all.take(c.path))
		if valueErr != nil {
			err = errors.Join(err, fmt.Errorf("%s: column %s: %w", key, c.name, valueErr))
		}
		values = append(values, value)
	}
	rest, restErr := json.Marshal(all)
	values[0] = string(rest)
	return key, values, errors.Join(err, restErr)
}

// fields are those of a JSON object: fields, where something was taken out of them, and else a
// json.RawMessage, which stays as it is.
type fields map[string]any

// UnmarshalJSON implements json.Unmarshaler.
func (f *fields) UnmarshalJSON(data []byte) error {
	raw := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &raw); err != nil {
		return err
	}
	*f = fields{}
	for name, value := range raw {
		(*f)[name] = value
	}
	return nil
}

// take removes a field and returns it; nil if there is none, or it is null.
func (f fields) take(path []string) json.RawMessage {
	for ; len(path) > 1; path = path[1:] {
		if raw, ok := f[path[0]].(json.RawMessage); ok {
			var inner fields
			if json.Unmarshal(raw, &inner) != nil {
				return nil
			}
			f[path[0]] = inner
		}
		inner, ok := f[path[0]].(fields)
		if !ok {
			return nil
		}
		f = inner
	}
	value, _ := f[path[0]].(json.RawMessage)
	delete(f, path[0])
	if string(value) == "null" {
		return nil
	}
	return value
}

// value is what a column has for a field.
func (c column) value(field json.RawMessage) (value any, err error) {
	if field == nil {
		return nil, nil
	}
	switch c.kind {
	case text:
		var v string
		err = json.Unmarshal(field, &v)
		value = v
	case integer:
		var v int64
		err = json.Unmarshal(field, &v)
		value = v
	case float:
		var v float64
		err = json.Unmarshal(field, &v)
		value = v
	case boolean:
		var v bool
		err = json.Unmarshal(field, &v)
		value = v
	case document:
		value = string(field)
	}
	return value, err
}

// row is where a row is scanned to: the columns of every table, and then the others. They are what
// the driver returned, nil for NULL.
type row struct {
	namespace, key, version, object any
	values                          []any
	into                            []any
}

func (s *statements) row() *row {
	r := &row{values: make([]any, len(s.columns)), into: make([]any, 0, len(s.columns)+4)}
	r.into = append(r.into, &r.namespace, &r.key, &r.version, &r.object)
	for i := range r.values {
		r.into = append(r.into, &r.values[i])
	}
	return r
}

// present tells whether there is a row.
func (r *row) present() bool { return r.key != nil }

// itemOf makes an object of a row: what the columns have is read over the JSON.
func itemOf[T any](s *statements, r *row) keep.Item[T] {
	version, is := r.version.(int64)
	if !is { // the column is of others
		version, _ = strconv.ParseInt(printed(r.version), 10, 64)
	}
	item := keep.Item[T]{Object: new(T), Version: version}
	if err := r.read(s.columns, item.Object); err != nil {
		item.Object = new(T)
		r.name(any(item.Object).(metav1.Object))
		item.Broken = fmt.Errorf("row %s/%s of table %s is no object: %w", printed(r.namespace), printed(r.key), s.table, err)
	}
	return item
}

// name gives an object the name of the row.
func (r *row) name(o metav1.Object) {
	o.SetNamespace(printed(r.namespace))
	o.SetName(printed(r.key))
}
