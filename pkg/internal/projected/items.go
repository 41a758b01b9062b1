package projected

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
)

// items are those of a list.
type items struct{ slice reflect.Value }

func newItems(list runtime.Object) (*items, error) {
	ptr, err := meta.GetItemsPtr(list)
	if err != nil {
		return nil, err
	}
	slice := reflect.ValueOf(ptr).Elem()
	slice.Set(reflect.MakeSlice(slice.Type(), 0, 0))
	return &items{slice}, nil
}

func (i *items) len() int { return i.slice.Len() }

// add adds an object. The list may have objects or pointers.
func (i *items) add(obj Object) {
	v := reflect.ValueOf(obj)
	if i.slice.Type().Elem().Kind() != reflect.Pointer {
		v = v.Elem()
	}
	i.slice.Set(reflect.Append(i.slice, v))
}

// assign sets an object to another one of its type.
func assign(to, from runtime.Object) error {
	t, f := reflect.ValueOf(to), reflect.ValueOf(from)
	if t.Type() != f.Type() {
		return fmt.Errorf("want %T, got %T", to, from)
	}
	t.Elem().Set(f.Elem())
	return nil
}
