package sqltable

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// place is where a field is in a struct: the way there, through structs and pointers to them. Nil:
// it is set by the JSON around it.
type place []int

// placeOf finds the field at a path, if what a column has can be set there as it is: a string, a
// number or a boolean with no JSON of its own.
func placeOf(t reflect.Type, path []string) place {
	var way place
	for _, name := range path {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct || readsItself(t) {
			return nil
		}
		fields := reflect.VisibleFields(t)
		i := slices.IndexFunc(fields, func(f reflect.StructField) bool {
			return jsonName(f) == name && len(f.Index) == 1 && !strings.Contains(f.Tag.Get("json"), ",string")
		})
		if i < 0 {
			return nil
		}
		way, t = append(way, fields[i].Index[0]), fields[i].Type
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if readsItself(t) || kindOf(t) == document {
		return nil
	}
	return way
}

// readsItself tells whether a type says how it is read from JSON.
func readsItself(t reflect.Type) bool {
	p := reflect.New(t).Interface()
	_, json := p.(json.Unmarshaler)
	_, text := p.(encoding.TextUnmarshaler)
	return json || text
}

// value is the field of an object, with what is on the way to it.
func (p place) value(v reflect.Value) reflect.Value {
	for _, i := range p {
		v = pointedAt(v).Field(i)
	}
	return pointedAt(v)
}

// pointedAt is what a value points at, which is made if need be.
func pointedAt(v reflect.Value) reflect.Value {
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		v = v.Elem()
	}
	return v
}

// set sets a field to what a driver returned for its column. Drivers return booleans as numbers and
// JSON as text, and tables of others have columns of other types.
func (c column) set(v reflect.Value, value any) error {
	field := c.place.value(v)
	switch c.kind {
	case text:
		field.SetString(printed(value))
		return nil
	case boolean:
		b, err := strconv.ParseBool(printed(value))
		field.SetBool(b)
		return err
	case float:
		f, is := value.(float64)
		if !is {
			var err error
			if f, err = strconv.ParseFloat(printed(value), field.Type().Bits()); err != nil {
				return err
			}
		}
		field.SetFloat(f)
		return nil
	case integer, document:
	}
	n, is := value.(int64)
	if !is {
		var err error
		if n, err = strconv.ParseInt(printed(value), 10, 64); err != nil {
			return err
		}
	}
	if field.CanUint() {
		if n < 0 || field.OverflowUint(uint64(n)) {
			return fmt.Errorf("%d is no %s", n, field.Type())
		}
		field.SetUint(uint64(n))
		return nil
	}
	if field.OverflowInt(n) {
		return fmt.Errorf("%d is no %s", n, field.Type())
	}
	field.SetInt(n)
	return nil
}

// read reads an object: what the columns have is read over the JSON.
func (r *row) read(columns []column, into any) error {
	if r.object != nil {
		if err := json.Unmarshal(bytesOf(r.object), into); err != nil {
			return err
		}
	}
	o := into.(metav1.Object)
	r.name(o)
	over, v := map[string]any{}, reflect.ValueOf(into)
	for i, c := range columns {
		value := r.values[i]
		var err error
		switch {
		case value == nil:
		case c.name == uidColumn:
			o.SetUID(types.UID(printed(value)))
		case c.name == createdColumn:
			var at time.Time
			at, err = time.Parse(time.RFC3339, printed(value))
			o.SetCreationTimestamp(metav1.NewTime(at.Local()))
		case c.place != nil:
			err = c.set(v, value)
		default:
			var document json.RawMessage
			document, err = c.json(value)
			put(over, c.path, document)
		}
		if err != nil {
			return fmt.Errorf("column %s: %w", c.name, err)
		}
	}
	if len(over) == 0 {
		return nil
	}
	data, err := json.Marshal(over)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// put sets a field.
func put(fields map[string]any, path []string, value any) {
	for ; len(path) > 1; path = path[1:] {
		inner, ok := fields[path[0]].(map[string]any)
		if !ok {
			inner = map[string]any{}
			fields[path[0]] = inner
		}
		fields = inner
	}
	fields[path[0]] = value
}

// printed is what a driver returned for a column, as text.
func printed(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case []byte:
		return string(v)
	case time.Time:
		return v.UTC().Format(time.RFC3339)
	}
	return fmt.Sprint(value)
}

// bytesOf is what a driver returned for a column of JSON.
func bytesOf(value any) []byte {
	if b, is := value.([]byte); is {
		return b
	}
	return []byte(printed(value))
}

// json is what a driver returned for a column, as JSON.
func (c column) json(value any) (json.RawMessage, error) {
	printed := printed(value)
	switch c.kind {
	case text:
		return json.Marshal(printed)
	case boolean:
		b, err := strconv.ParseBool(printed)
		return json.RawMessage(strconv.FormatBool(b)), err
	case integer, float, document:
	}
	if !json.Valid([]byte(printed)) {
		return nil, fmt.Errorf("%q is no JSON", printed)
	}
	return json.RawMessage(printed), nil
}
