package apis

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
)

// spoke is a served version that is not the hub.
type spoke struct {
	version        string
	types          goTypes
	toHub, fromHub convert
}

// convert fills to from from.
type convert func(from, to runtime.Object) error

type spokeDefault struct {
	object reflect.Type
	fill   func(runtime.Object)
}

// Version serves the resource in one more version, a spoke, with its own Go
// type V and list type VL:
//
//	apis.Version[v1alpha1.Apple, v1alpha1.AppleList]("v1alpha1", toHub, fromHub)
//
// toHub and fromHub fill their second argument, in which metadata is already
// set, from their first, which they must not change but may share memory
// with. Lists are converted item by item.
//
// Every value of one version must survive the way to the other and back, if
// need be in an annotation: a client that reads and writes an object in one
// version must not lose what another client wrote in another. Package
// apitest checks it.
func Version[V, VL, T any, PV interface {
	*V
	Object
}, PVL interface {
	*VL
	runtime.Object
}](version string, toHub func(*V, *T) error, fromHub func(*T, *V) error) Option {
	return typed[T](fmt.Sprintf("Version %q", version), func(d *Definition) {
		d.spokes = append(d.spokes, spoke{
			version: version,
			types:   typesOf[V, VL, PV, PVL](),
			toHub:   converter(toHub),
			fromHub: converter(fromHub),
		})
	})
}

// DefaultVersion fills in what a client of version V left empty, before the
// object is converted to the hub and the hub's own defaults apply.
func DefaultVersion[V any](fill func(*V)) Option {
	return func(d *Definition) {
		d.spokeDefaults = append(d.spokeDefaults, spokeDefault{
			object: reflect.TypeFor[V](),
			fill:   func(obj runtime.Object) { fill(any(obj).(*V)) },
		})
	}
}

func converter[A, B any](fill func(*A, *B) error) convert {
	return func(from, to runtime.Object) error {
		metadataOf(to).Set(metadataOf(from)) // forgotten in a conversion, it would lose the object's name
		return fill(any(from).(*A), any(to).(*B))
	}
}

// function adapts a conversion to the scheme.
func (c convert) function(from, to any, _ conversion.Scope) error {
	return c(from.(runtime.Object), to.(runtime.Object))
}

// list converts lists, item by item, with c.
func (c convert) list(from, to any, _ conversion.Scope) error {
	source, target, err := itemsOf(from, to)
	if err != nil {
		return err
	}
	if have := embedded(from, "ListMeta"); have.IsValid() {
		embedded(to, "ListMeta").Set(have)
	}
	if source.IsNil() {
		target.SetZero()
		return nil
	}
	target.Set(reflect.MakeSlice(target.Type(), source.Len(), source.Len()))
	for i := range source.Len() {
		if err := c(item(source.Index(i)), item(target.Index(i))); err != nil {
			return fmt.Errorf("items[%d]: %w", i, err)
		}
	}
	return nil
}

// itemsOf returns the Items fields of two lists.
func itemsOf(a, b any) (reflect.Value, reflect.Value, error) {
	var fields [2]reflect.Value
	for i, list := range []any{a, b} {
		items, err := meta.GetItemsPtr(list.(runtime.Object))
		if err != nil {
			return reflect.Value{}, reflect.Value{}, err
		}
		fields[i] = reflect.ValueOf(items).Elem()
	}
	return fields[0], fields[1], nil
}

// item is the object in an element of Items, which may be []T or []*T.
func item(v reflect.Value) runtime.Object {
	if v.Kind() != reflect.Pointer {
		return v.Addr().Interface().(runtime.Object)
	}
	if v.IsNil() {
		v.Set(reflect.New(v.Type().Elem()))
	}
	return v.Interface().(runtime.Object)
}
