package reflected

import (
	"encoding/json"
	"reflect"
	"slices"
	"time"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// drawing makes the schema of one definition.
type drawing struct {
	*walk
	owner reflect.Type        // the type being defined, or the struct that declares field
	field reflect.StructField // the field being drawn
	deps  map[string]bool     // definitions referred to
	open  map[reflect.Type]bool
}

func (d *drawing) fail(format string, args ...any) {
	d.errs = append(d.errs, fieldError(d.owner, d.field, format, args...))
}

// object returns the schema of a struct that marshals by its fields.
func (d *drawing) object(t reflect.Type) spec.Schema {
	schema := simple("object", "")
	list, err := properties(t)
	if err != nil {
		d.errs = append(d.errs, err)
	}
	texts := map[reflect.Type]map[string]string{}
	for _, p := range list {
		if schema.Properties == nil {
			schema.Properties = map[string]spec.Schema{}
		}
		if _, ok := texts[p.owner]; !ok {
			texts[p.owner] = docs(p.owner)
		}
		schema.Properties[p.name] = d.property(p, texts[p.owner][p.name])
		if !p.optional {
			schema.Required = append(schema.Required, p.name)
		}
	}
	return schema
}

func (d *drawing) property(p property, doc string) spec.Schema {
	d.owner, d.field = p.owner, p.field
	schema := simple("string", "")
	if !p.quoted {
		schema = d.value(p.field.Type)
		schema.Default = defaultOf(p.field.Type, p.omits)
	}
	// Drawing an unnamed struct has changed them.
	d.owner, d.field = p.owner, p.field
	d.lists(p, &schema)
	schema.Description = doc
	if text, ok := d.text(p.owner, p.field.Name); ok {
		schema.Description = text
	}
	return schema
}

// value returns the schema of a field, an element or a map's value.
func (d *drawing) value(t reflect.Type) spec.Schema {
	t = deref(t)
	switch {
	case t == reflect.TypeFor[time.Time]():
		return simple("string", "date-time")
	case t == reflect.TypeFor[json.Number]():
		// A string in Go, a number in JSON.
		return arbitrary()
	case d.hasDefinition(t):
		return d.reference(t)
	case marshalsJSON(t):
		return arbitrary()
	case marshalsText(t):
		return simple("string", "")
	}
	if typ, format := common.OpenAPITypeFormat(t.Kind().String()); typ != "" {
		schema := simple(typ, format)
		schema.Enum = d.enum(t)
		return schema
	}
	return d.composite(t)
}

// composite is value for kinds that have parts.
func (d *drawing) composite(t reflect.Type) spec.Schema {
	if d.open[t] {
		d.fail("%s contains itself without a struct in between, which OpenAPI cannot describe: put it into a struct",
			goName(t))
		return spec.Schema{}
	}
	d.open[t] = true
	defer delete(d.open, t)

	switch t.Kind() {
	case reflect.Interface:
		return arbitrary()
	case reflect.Struct:
		return d.object(t)
	case reflect.Slice, reflect.Array:
		if elem := t.Elem(); t.Kind() == reflect.Slice && elem.Kind() == reflect.Uint8 &&
			!marshalsJSON(elem) && !marshalsText(elem) {
			return simple("string", "byte")
		}
		schema := simple("array", "")
		schema.Items = &spec.SchemaOrArray{Schema: d.element(t.Elem())}
		return schema
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			d.fail("has map keys of type %s: OpenAPI allows only string keys", goName(t.Key()))
			return spec.Schema{}
		}
		schema := simple("object", "")
		schema.AdditionalProperties = &spec.SchemaOrBool{Allows: true, Schema: d.element(t.Elem())}
		return schema
	default:
		d.fail("a %s has no JSON form: tag the field `json:\"-\"`", t.Kind())
		return spec.Schema{}
	}
}

func (d *drawing) element(t reflect.Type) *spec.Schema {
	schema := d.value(t)
	return &schema
}

// hasDefinition reports whether a type is referred to instead of being drawn in
// place.
func (d *drawing) hasDefinition(t reflect.Type) bool {
	if t.Name() == "" {
		return false
	}
	if _, ok, err := declared(t); ok || err != nil {
		return true
	}
	if t.Kind() != reflect.Struct {
		return false
	}
	if marshalsText(t) && !marshalsJSON(t) {
		name, err := definitionName(t)
		return err == nil && d.known[name]
	}
	return true
}

func (d *drawing) reference(t reflect.Type) spec.Schema {
	name, err := d.enqueue(t)
	if err != nil {
		d.fail("%v", err)
		return spec.Schema{}
	}
	d.deps[name] = true
	return spec.Schema{SchemaProps: spec.SchemaProps{Ref: d.ref(name)}}
}

// enum returns the values of a type named by [Enum], sorted as openapi-gen sorts them.
func (d *drawing) enum(t reflect.Type) []any {
	values, ok := d.settings.enums[t]
	if !ok {
		return nil
	}
	d.used[target{kind: "Enum", typ: t}] = true
	var enum []any
	for _, v := range slices.Sorted(slices.Values(values)) {
		enum = append(enum, v)
	}
	return enum
}

// describe returns the description of a type.
func (d *drawing) describe(t reflect.Type) string {
	if text, ok := d.text(t, ""); ok {
		return text
	}
	return docs(t)[""]
}

// text returns the description given with [Describe].
func (d *drawing) text(t reflect.Type, field string) (string, bool) {
	key := target{kind: "Describe", typ: t, field: field}
	text, ok := d.settings.texts[key]
	if ok {
		d.used[key] = true
	}
	return text, ok
}

// defaultOf returns the default that openapi-gen states for a field whose zero value is always in the JSON form:
// https://github.com/kubernetes/kube-openapi/blob/master/pkg/generators/openapi.go (mustEnforceDefault).
func defaultOf(t reflect.Type, omits bool) any {
	if marshalsJSON(t) || marshalsText(t) || implements[json.Unmarshaler](t) || t == reflect.TypeFor[json.Number]() {
		return nil
	}
	if _, ok, err := declared(t); ok || err != nil {
		return nil
	}
	if t.Kind() == reflect.Struct {
		if t.NumField() == 1 && t.Field(0).Anonymous {
			return defaultOf(t.Field(0).Type, omits)
		}
		return map[string]any{}
	}
	if v, ok := zero(t.Kind()); ok && !omits {
		return v
	}
	return nil
}

// zero returns the JSON form of a scalar kind's zero value.
func zero(k reflect.Kind) (any, bool) {
	switch typ, _ := common.OpenAPITypeFormat(k.String()); typ {
	case "integer", "number":
		return 0, true
	case "boolean":
		return false, true
	case "string":
		return "", true
	}
	return nil, false
}

func simple(typ, format string) spec.Schema {
	return spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{typ}, Format: format}}
}

// arbitrary is the schema of any JSON value.
func arbitrary() spec.Schema {
	return spec.Schema{VendorExtensible: spec.VendorExtensible{
		Extensions: spec.Extensions{"x-kubernetes-preserve-unknown-fields": true},
	}}
}
