package apis

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"time"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/openapi/reflected"
)

// Object is a pointer to an API type: a struct with metav1.TypeMeta and
// metav1.ObjectMeta embedded and a DeepCopyObject method.
type Object interface {
	runtime.Object
	metav1.Object
}

// Definition is one resource, made by [Resource]. It is immutable and holds nothing
// of a plane: any number of planes may be built from one Definition.
type Definition struct {
	name, singular, kind string
	shortNames           []string
	categories           []string
	clusterScoped        bool
	status               bool
	statusMetadata       bool
	statusKeeps          []string
	noGeneration         bool
	createOnUpdate       bool
	verbs                []string
	readOnly             bool
	nameValidation       func(name string, prefix bool) []string
	hub                  goTypes
	spokes               []spoke
	columns              *columns
	scale                *scale
	selectable           map[string]func(runtime.Object) string
	defaults             []func(runtime.Object)
	spokeDefaults        []spokeDefault
	validate             []func(context.Context, runtime.Object) field.ErrorList
	validateCreate       []func(context.Context, runtime.Object) field.ErrorList
	validateUpdate       []func(ctx context.Context, obj, old runtime.Object) field.ErrorList
	ruleOptions          map[string]bool
	drops                []func(obj, old runtime.Object)
	prepareCreate        []func(context.Context, runtime.Object)
	prepareUpdate        []func(ctx context.Context, obj, old runtime.Object)
	warn                 []func(context.Context, runtime.Object) []string
	ignores              []string
	subresources         map[string]func(*registry.Store, strategy) rest.Storage
	longRunning          []string // sub-resources that stream
	consoles             []string // those that take the verb create, whatever the method
	bodies               []body
	storeHooks           []func(*registry.Store)
	schema               []reflected.Option
	// kept has objects be somewhere else than with the plane's; nil: they are there.
	kept func(controlplane.BuildConfig, schema.GroupResource) (generic.RESTOptionsGetter, error)
	// stale is how old what is read there may be while that fails.
	stale time.Duration
	// view says that these are the objects of another resource.
	view       bool
	optionErrs []error
}

// goTypes are the Go types of one version.
type goTypes struct {
	object    reflect.Type
	list      reflect.Type
	newObject func() Object
	newList   func() runtime.Object
}

func typesOf[T, L any, PT interface {
	*T
	Object
}, PL interface {
	*L
	runtime.Object
}]() goTypes {
	return goTypes{
		object:    reflect.TypeFor[T](),
		list:      reflect.TypeFor[L](),
		newObject: func() Object { return PT(new(T)) },
		newList:   func() runtime.Object { return PL(new(L)) },
	}
}

// Resource defines the resource with the given plural name ("apples") for objects of
// type T in lists of type L. T is the hub: the version that is stored. PT and
// PL are inferred.
//
// Without options it is namespaced, takes all verbs, and its kind is the name
// of T. Mistakes in the options are reported by [Definition.Err].
func Resource[T, L any, PT interface {
	*T
	Object
}, PL interface {
	*L
	runtime.Object
}](name string, options ...Option) *Definition {
	d := &Definition{
		name:           name,
		kind:           reflect.TypeFor[T]().Name(),
		hub:            typesOf[T, L, PT, PL](),
		nameValidation: apivalidation.NameIsDNSSubdomain,
	}
	for _, apply := range options {
		apply(d)
	}
	if d.singular == "" {
		d.singular = strings.ToLower(d.kind)
	}
	return d
}

// Name is the plural name, "apples".
func (d *Definition) Name() string { return d.name }

// Kind is the kind of the objects, "Apple"; that of lists is "AppleList".
func (d *Definition) Kind() string { return d.kind }

// Spokes are the served versions besides the hub, in the order given.
func (d *Definition) Spokes() []string {
	versions := make([]string, 0, len(d.spokes))
	for _, s := range d.spokes {
		versions = append(versions, s.version)
	}
	return versions
}

// Protobuf reports whether the types of every version have the methods that
// the protobuf serializer of k8s.io/apimachinery needs.
func (d *Definition) Protobuf() bool {
	for _, t := range d.types() {
		for _, obj := range []any{t.newObject(), t.newList()} {
			if _, ok := obj.(protobufMessage); !ok {
				return false
			}
		}
	}
	return true
}

// GoTypes are the types of objects and lists in every version.
func (d *Definition) GoTypes() []reflect.Type {
	var all []reflect.Type
	for _, t := range d.types() {
		all = append(all, t.object, t.list)
	}
	return all
}

// protobufMessage is what k8s.io/apimachinery/pkg/runtime/serializer/protobuf
// asserts: its unbufferedMarshaller and its unmarshaler.
type protobufMessage interface {
	Reset()
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// types are the Go types of all versions, the hub's first.
func (d *Definition) types() []goTypes {
	types := []goTypes{d.hub}
	for _, s := range d.spokes {
		types = append(types, s.types)
	}
	return types
}

// served are the versions of the resource, the hub first.
func (d *Definition) served(hub schema.GroupVersion) []schema.GroupVersion {
	gvs := []schema.GroupVersion{hub}
	for _, s := range d.spokes {
		gvs = append(gvs, schema.GroupVersion{Group: hub.Group, Version: s.version})
	}
	return slices.Clip(gvs)
}
