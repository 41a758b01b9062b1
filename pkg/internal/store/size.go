package store

import (
	"math/bits"
	"reflect"
	"time"
)

// sizeOf estimates how many bytes a decoded object takes. It can be many times what
// is stored: {"a":1} is 7 bytes there and some 300 in memory.
func sizeOf(object any) int64 {
	switch o := object.(type) { // what custom resources are made of
	case nil:
		return 0
	case map[string]any:
		n := tableSize(len(o), 2*wordSize+2*wordSize)
		for k, v := range o {
			n += int64(len(k)) + sizeOf(v)
		}
		return n
	case []any:
		n := int64(3+2*cap(o)) * wordSize
		for _, v := range o {
			n += sizeOf(v)
		}
		return n
	case string:
		return 2*wordSize + int64(len(o))
	case int64, float64, bool:
		return wordSize
	}
	v := reflect.ValueOf(object)
	if v.Kind() == reflect.Pointer {
		return behind(v)
	}
	return int64(v.Type().Size()) + behind(v)
}

const wordSize = 8

// tableSize is the size of a map of n entries: slots in groups of eight, of which at
// most seven eighths are used, and their number doubles.
func tableSize(n, entry int) int64 {
	const head, group = 6 * wordSize, 8
	switch {
	case n == 0:
		return head
	case n <= group:
		return head + int64(group*(entry+1))
	}
	slots := int64(1) << bits.Len(uint(n*group/(group-1))) //nolint:gosec // no length is negative
	return head + slots*int64(entry+1)
}

// behind is how many bytes a value refers to.
func behind(v reflect.Value) int64 {
	switch v.Kind() {
	case reflect.String:
		return int64(v.Len())
	case reflect.Pointer:
		if v.IsNil() {
			return 0
		}
		return int64(v.Type().Elem().Size()) + behind(v.Elem())
	case reflect.Interface:
		if v.IsNil() {
			return 0
		}
		if v.CanInterface() {
			return sizeOf(v.Interface())
		}
		return int64(v.Elem().Type().Size()) + behind(v.Elem())
	case reflect.Slice:
		n := int64(v.Cap()) * int64(v.Type().Elem().Size())
		if isFlat(v.Type().Elem()) {
			return n
		}
		for i := range v.Len() {
			n += behind(v.Index(i))
		}
		return n
	case reflect.Array:
		if isFlat(v.Type().Elem()) {
			return 0
		}
		n := int64(0)
		for i := range v.Len() {
			n += behind(v.Index(i))
		}
		return n
	case reflect.Map:
		return behindMap(v)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return 0 // its place is one of the process
		}
		n := int64(0)
		for i := range v.NumField() {
			n += behind(v.Field(i))
		}
		return n
	default:
		return 0
	}
}

func behindMap(v reflect.Value) int64 {
	if v.IsNil() {
		return 0
	}
	if v.CanInterface() {
		if m, ok := v.Interface().(map[string]any); ok {
			return sizeOf(m)
		}
	}
	t := v.Type()
	n := tableSize(v.Len(), int(t.Key().Size()+t.Elem().Size())) //nolint:gosec // sizes of types are small
	for entries := v.MapRange(); entries.Next(); {
		n += behind(entries.Key()) + behind(entries.Value())
	}
	return n
}

// isFlat tells whether values of a type refer to nothing.
func isFlat(t reflect.Type) bool { return reflect.Bool <= t.Kind() && t.Kind() <= reflect.Complex128 }
