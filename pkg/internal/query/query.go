// Package query reads the query of a URL into a Go struct, by the names of its JSON
// fields, as the conversions that k8s.io/code-generator makes do: a parameter that is
// missing leaves its field empty, and parameters without a field are ignored.
package query

import (
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// parameter is a field of the struct.
type parameter struct {
	name  string
	index []int
	read  reader
}

// reader sets a value from what the query has, at least one string.
type reader func(v reflect.Value, values []string) error

// unmarshaler is implemented by metav1.Time.
type unmarshaler interface {
	UnmarshalQueryParameter(string) error
}

// Decoder returns a function that fills a struct of the type, given as a pointer. Fields
// may be strings, bools, integers, metav1.Time, and pointers to and slices of these; others
// are an error. Only "0" and "false" mean false.
func Decoder(t reflect.Type) (func(values url.Values, into any) error, error) {
	parameters, err := parametersOf(t, nil)
	if err != nil {
		return nil, err
	}
	return func(values url.Values, into any) error {
		v := reflect.ValueOf(into).Elem()
		for _, p := range parameters {
			if given := values[p.name]; len(given) > 0 {
				if err := p.read(v.FieldByIndex(p.index), given); err != nil {
					return fmt.Errorf("parameter %q: %w", p.name, err)
				}
			}
		}
		return nil
	}, nil
}

func parametersOf(t reflect.Type, index []int) ([]parameter, error) {
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("%s is not a struct: its fields name the parameters of a query", t)
	}
	var all []parameter
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		at := append(slices.Clone(index), i)
		switch {
		case f.Type == reflect.TypeFor[metav1.TypeMeta]() || name == "-" || !f.IsExported():
		case f.Anonymous && name == "":
			inline, err := parametersOf(f.Type, at)
			if err != nil {
				return nil, err
			}
			all = append(all, inline...)
		default:
			read := readerOf(f.Type)
			if read == nil {
				return nil, fmt.Errorf("field %s.%s: %s cannot be a parameter of a query: use a string, a bool, an integer, "+
					"a metav1.Time, or a pointer to or a slice of these", t, f.Name, f.Type)
			}
			if name == "" {
				name = f.Name
			}
			all = append(all, parameter{name, at, read})
		}
	}
	return all, nil
}

// readerOf is nil when a value of the type cannot be in a query.
func readerOf(t reflect.Type) reader {
	if reflect.PointerTo(t).Implements(reflect.TypeFor[unmarshaler]()) {
		return func(v reflect.Value, values []string) error {
			u, _ := reflect.TypeAssert[unmarshaler](v.Addr())
			return u.UnmarshalQueryParameter(values[0])
		}
	}
	switch {
	case t.Kind() == reflect.String:
		return func(v reflect.Value, values []string) error { v.SetString(values[0]); return nil }
	case t.Kind() == reflect.Bool:
		return func(v reflect.Value, values []string) error {
			var is bool
			err := runtime.Convert_Slice_string_To_bool(&values, &is, nil)
			v.SetBool(is)
			return err
		}
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Int64:
		return func(v reflect.Value, values []string) error {
			n, err := strconv.ParseInt(values[0], 10, t.Bits())
			if err != nil {
				return fmt.Errorf("%q is not an integer of %d bits: %w", values[0], t.Bits(), errors.Unwrap(err))
			}
			v.SetInt(n)
			return nil
		}
	}
	if t.Kind() != reflect.Slice && t.Kind() != reflect.Pointer {
		return nil
	}
	read := readerOf(t.Elem())
	switch {
	case read == nil:
		return nil
	case t.Kind() == reflect.Pointer:
		return func(v reflect.Value, values []string) error {
			v.Set(reflect.New(t.Elem()))
			return read(v.Elem(), values)
		}
	}
	return func(v reflect.Value, values []string) error {
		all := reflect.MakeSlice(t, len(values), len(values))
		for i := range values {
			if err := read(all.Index(i), values[i:i+1]); err != nil {
				return err
			}
		}
		v.Set(all)
		return nil
	}
}
