package apis

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sailplane-dev/sailplane/pkg/internal/projected"
)

// shape makes objects of a view from those below, and back.
type shape[T, B any, PB interface {
	*B
	Object
}] struct {
	publish func(below *B, obj *T) bool
	accept  func(obj *T, below *B) error
}

func (s shape[T, B, PB]) show(below, obj projected.Object) (bool, error) {
	b, err := s.decode(below)
	if err != nil {
		return false, err
	}
	return s.publish(b, any(obj).(*T)), nil
}

// decode returns an object below as its Go type.
func (shape[T, B, PB]) decode(below runtime.Object) (*B, error) {
	if b, ok := any(below).(*B); ok {
		return b, nil
	}
	u, ok := below.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("want %T, got %T", *new(B), below)
	}
	b := new(B)
	return b, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, b)
}

// stored returns a storage of the resource below if its objects are those that are published.
func (shape[T, B, PB]) stored(of rest.Storage) (rest.Storage, bool) {
	if of == nil {
		return nil, false
	}
	_, is := of.New().(PB)
	return of, is
}

// write makes the changes that accept makes, and leaves the fields that B does not have.
func (s shape[T, B, PB]) write(obj projected.Object, below *unstructured.Unstructured) error {
	b, err := s.decode(below)
	if err != nil {
		return err
	}
	if any(b) == any(below) {
		return s.accept(any(obj).(*T), b)
	}
	was, err := runtime.DefaultUnstructuredConverter.ToUnstructured(b)
	if err != nil {
		return err
	}
	if err := s.accept(any(obj).(*T), b); err != nil {
		return err
	}
	is, err := runtime.DefaultUnstructuredConverter.ToUnstructured(b)
	if err != nil {
		return err
	}
	change(was, is, below.Object)
	return nil
}

// change makes the changes between two objects to a third one.
func change(was, is, of map[string]any) {
	for name := range was {
		if _, kept := is[name]; !kept {
			delete(of, name)
		}
	}
	for name, value := range is {
		before, had := was[name]
		if had && reflect.DeepEqual(before, value) {
			continue
		}
		a, wasMap := before.(map[string]any)
		b, isMap := value.(map[string]any)
		c, ofMap := of[name].(map[string]any)
		if wasMap && isMap && ofMap {
			change(a, b, c)
			continue
		}
		of[name] = value
	}
}
