package apis

import (
	"reflect"

	"github.com/sailplane-dev/sailplane/pkg/internal/openapi/reflected"
)

// The options below say what Go types cannot, for OpenAPI definitions that are
// built by reflection. They have no effect on generated definitions.

// Enum lists the values of a string type, as +enum does for generated
// definitions. It documents them; Validate refuses others.
func Enum[T ~string](values ...T) Option { return described(reflected.Enum(values...)) }

// Describe documents a field of struct type T, named as in Go, or T itself when
// field is empty.
func Describe[T any](field, text string) Option {
	return described(reflected.Describe(reflect.TypeFor[T](), field, text))
}

// ListType says how a list field of struct type T merges in server-side apply:
// "atomic", "set", or "map" with the fields that key its items, by their JSON
// names.
// https://kubernetes.io/docs/reference/using-api/server-side-apply/#merge-strategy
func ListType[T any](field, kind string, mapKeys ...string) Option {
	return described(reflected.ListType(reflect.TypeFor[T](), field, kind, mapKeys...))
}

func described(o reflected.Option) Option {
	return func(d *Definition) { d.schema = append(d.schema, o) }
}

// Schema are the options of the OpenAPI definitions built by reflection.
func (d *Definition) Schema() []reflected.Option { return d.schema }
