package kept

import (
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// roundTimes gives all times in a value the precision that they have in JSON: an object that a
// client read and sends back is then the one that is kept.
func roundTimes(v reflect.Value) {
	if v.CanInterface() && v.CanAddr() {
		switch t := v.Addr().Interface().(type) {
		case *metav1.Time:
			*t = t.Rfc3339Copy()
			return
		case *metav1.MicroTime:
			t.Time = t.Truncate(time.Microsecond)
			return
		}
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			roundTimes(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				roundTimes(v.Field(i))
			}
		}
	case reflect.Slice, reflect.Array:
		if k := v.Type().Elem().Kind(); k < reflect.Array || k == reflect.String {
			return // of numbers or strings
		}
		for i := range v.Len() {
			roundTimes(v.Index(i))
		}
	case reflect.Map:
		if k := v.Type().Elem().Kind(); k < reflect.Array || k == reflect.String {
			return
		}
		for _, key := range v.MapKeys() {
			value := reflect.New(v.Type().Elem()).Elem()
			value.Set(v.MapIndex(key))
			roundTimes(value)
			v.SetMapIndex(key, value)
		}
	default:
	}
}
