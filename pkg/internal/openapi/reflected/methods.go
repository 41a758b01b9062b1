package reflected

import (
	"encoding"
	"encoding/json"
	"errors"
	"maps"
	"reflect"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// schemaTyper is implemented by types whose JSON form openapi-gen describes as a
// simple one.
type schemaTyper interface {
	OpenAPISchemaType() []string
	OpenAPISchemaFormat() string
}

// oneOfTyper lists the types of a value that OpenAPI v2 cannot describe.
type oneOfTyper interface {
	OpenAPIV3OneOfTypes() []string
}

// swaggerDocer is what the published types implement: descriptions by JSON name, the type's own under "".
type swaggerDocer interface {
	SwaggerDoc() map[string]string
}

// declared returns the definition that t declares by its own methods, with the precedence of openapi-gen.
func declared(t reflect.Type) (common.OpenAPIDefinition, bool, error) {
	if t.Kind() == reflect.Interface {
		return common.OpenAPIDefinition{}, false, nil
	}
	// Methods of an embedded field describe that field. They are right for the whole only if its marshaller is
	// inherited as well.
	if _, ok := inherits(t, declaration); ok && !marshalsJSON(t) && !marshalsText(t) {
		return common.OpenAPIDefinition{}, false, nil
	}

	v := sample(t)
	v2, hasV2 := v.(common.OpenAPIDefinitionGetter)
	v3, hasV3 := v.(common.OpenAPIV3DefinitionGetter)
	typer, hasType := v.(schemaTyper)
	oneOf, hasOneOf := v.(oneOfTyper)
	var def common.OpenAPIDefinition
	switch {
	case hasType && hasV3:
		def = common.EmbedOpenAPIDefinitionIntoV2Extension(owned(v3.OpenAPIV3Definition()), typed(typer))
	case hasType && hasOneOf:
		either := typed(typer)
		either.Schema.Type = nil
		either.Schema.OneOf = common.GenerateOpenAPIV3OneOfSchema(oneOf.OpenAPIV3OneOfTypes())
		def = common.EmbedOpenAPIDefinitionIntoV2Extension(either, typed(typer))
	case hasType:
		def = typed(typer)
	case hasV2 && hasV3:
		def = common.EmbedOpenAPIDefinitionIntoV2Extension(owned(v3.OpenAPIV3Definition()), v2.OpenAPIDefinition())
	case hasV2:
		def = owned(v2.OpenAPIDefinition())
	case hasV3:
		def = owned(v3.OpenAPIV3Definition())
	case hasOneOf:
		return def, false, errors.New(
			"OpenAPIV3OneOfTypes needs OpenAPISchemaType and OpenAPISchemaFormat too, for OpenAPI v2")
	default:
		return def, false, nil
	}
	return def, true, nil
}

// declaration returns what [declared] goes by, in a form that can be compared.
func declaration(v any) (any, bool) {
	switch v := v.(type) {
	case schemaTyper:
		return [2]any{v.OpenAPISchemaType(), v.OpenAPISchemaFormat()}, true
	case common.OpenAPIDefinitionGetter:
		return v.OpenAPIDefinition(), true
	case common.OpenAPIV3DefinitionGetter:
		return v.OpenAPIV3Definition(), true
	case oneOfTyper:
		return v.OpenAPIV3OneOfTypes(), true
	}
	return nil, false
}

func typed(t schemaTyper) common.OpenAPIDefinition {
	return common.OpenAPIDefinition{Schema: spec.Schema{SchemaProps: spec.SchemaProps{
		Type:   t.OpenAPISchemaType(),
		Format: t.OpenAPISchemaFormat(),
	}}}
}

// owned copies the one map of a definition that the builder writes to.
func owned(def common.OpenAPIDefinition) common.OpenAPIDefinition {
	def.Schema.Extensions = maps.Clone(def.Schema.Extensions)
	return def
}

// docs returns the descriptions which t itself carries.
func docs(t reflect.Type) map[string]string {
	probe := func(v any) (any, bool) {
		docer, ok := v.(swaggerDocer)
		if !ok {
			return nil, false
		}
		return docer.SwaggerDoc(), true
	}
	if _, ok := inherits(t, probe); ok {
		return nil
	}
	if docer, ok := sample(t).(swaggerDocer); ok {
		return docer.SwaggerDoc()
	}
	return nil
}

// inherits reports whether probe finds the same in t as in an embedded field, and names the field: t then has the
// method from it. Reflection does not tell a promoted method from a declared one.
func inherits(t reflect.Type, probe func(any) (any, bool)) (field string, ok bool) {
	if t.Kind() != reflect.Struct {
		return "", false
	}
	own, ok := probe(sample(t))
	if !ok {
		return "", false
	}
	for f := range t.Fields() {
		if !f.Anonymous || deref(f.Type).Kind() == reflect.Interface {
			continue
		}
		if theirs, ok := probe(sample(deref(f.Type))); ok && reflect.DeepEqual(own, theirs) {
			return f.Name, true
		}
	}
	return "", false
}

// sample returns a pointer to a zero T on which every method may be called: embedded pointers, through which methods
// are promoted, are not nil. If that is impossible it returns a value without methods.
func sample(t reflect.Type) any {
	v := reflect.New(t)
	if !fillEmbedded(v.Elem(), map[reflect.Type]bool{}) {
		return struct{}{}
	}
	return v.Interface()
}

// fillEmbedded reports false for an embedded pointer to an unexported type, which nobody but its package can set.
func fillEmbedded(v reflect.Value, open map[reflect.Type]bool) bool {
	if v.Kind() != reflect.Struct || open[v.Type()] {
		return true
	}
	open[v.Type()] = true
	defer delete(open, v.Type())
	for i := range v.NumField() {
		field := v.Field(i)
		if !v.Type().Field(i).Anonymous {
			continue
		}
		if field.Kind() == reflect.Pointer {
			if !field.CanSet() {
				return false
			}
			if open[field.Type().Elem()] {
				continue
			}
			field.Set(reflect.New(field.Type().Elem()))
			field = field.Elem()
		}
		if !fillEmbedded(field, open) {
			return false
		}
	}
	return true
}

func marshalsJSON(t reflect.Type) bool { return implements[json.Marshaler](t) }

func marshalsText(t reflect.Type) bool { return implements[encoding.TextMarshaler](t) }

// implements checks both receivers: API objects are encoded through pointers.
func implements[I any](t reflect.Type) bool {
	want := reflect.TypeFor[I]()
	return t.Implements(want) || reflect.PointerTo(t).Implements(want)
}
