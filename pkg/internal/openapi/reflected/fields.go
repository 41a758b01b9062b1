package reflected

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// property is one JSON member of a struct.
type property struct {
	name     string       // in JSON
	owner    reflect.Type // the struct that declares it, which may be an embedded one
	field    reflect.StructField
	omits    bool // the tag says omitempty or omitzero
	optional bool // may be missing in JSON
	quoted   bool // the tag says string, and the Go kind is one which encoding/json quotes

	depth int    // of embedding: the shallowest of equal names wins
	twin  string // another field with the same name at the same depth
}

// members collects properties in field order.
type members struct {
	list []property
	open map[reflect.Type]bool // being read, to find cycles
	errs []error
}

// properties returns the JSON members of a struct as encoding/json sees them. It returns those it could read beside
// the error.
func properties(t reflect.Type) ([]property, error) {
	m := &members{open: map[reflect.Type]bool{}}
	m.read(place{owner: t})
	for _, p := range m.list {
		if p.twin != "" {
			m.fail(p.owner, p.field, "has the same JSON name %q as field %s: rename one", p.name, p.twin)
		}
	}
	return m.list, errors.Join(m.errs...)
}

// place is where fields are read: a struct, which may be embedded in another.
type place struct {
	owner    reflect.Type
	depth    int  // of embedding
	optional bool // behind a pointer that may be nil
}

func (m *members) read(at place) {
	m.open[at.owner] = true
	defer delete(m.open, at.owner)
	for f := range at.owner.Fields() {
		tag := f.Tag.Get("json")
		if tag == "-" {
			continue
		}
		name, rest, _ := strings.Cut(tag, ",")
		opts := strings.Split(rest, ",")
		if m.consumed(at, f, name, slices.Contains(opts, "inline")) {
			continue
		}
		if name == "" {
			name = f.Name
		}
		omits := slices.Contains(opts, "omitempty") || slices.Contains(opts, "omitzero")
		m.add(property{
			name: name, owner: at.owner, field: f, depth: at.depth,
			omits:    omits,
			optional: omits || at.optional,
			quoted:   slices.Contains(opts, "string") && quotable(f.Type),
		})
	}
}

// consumed reports whether f is no property of its own: it is unexported, or it is an embedded struct, whose fields
// consumed then reads, or it is not clearly either, which is an error.
func (m *members) consumed(at place, f reflect.StructField, name string, inline bool) bool {
	elem := f.Type
	pointer := elem.Kind() == reflect.Pointer
	if pointer {
		elem = elem.Elem()
	}
	isStruct := f.Anonymous && elem.Kind() == reflect.Struct
	switch {
	case inline && (!isStruct || name != ""):
		m.fail(at.owner, f, "the json option inline is for embedded structs without a name: "+
			"encoding/json ignores it here, server-side apply does not: remove it")
	case isStruct && pointer && !f.IsExported():
		m.fail(at.owner, f, "encoding/json cannot decode into an embedded pointer to an unexported struct: "+
			"embed the struct itself")
	case isStruct && name != "":
		return false
	case !isStruct:
		return !f.IsExported()
	case m.open[elem]:
		m.fail(at.owner, f, "embeds %s in itself: give the field a JSON name", goName(elem))
	default:
		m.read(place{owner: elem, depth: at.depth + 1, optional: at.optional || pointer})
	}
	return true
}

// add keeps the shallower of two properties with one name, as Go and encoding/json do.
func (m *members) add(p property) {
	i := slices.IndexFunc(m.list, func(other property) bool { return other.name == p.name })
	switch {
	case i < 0:
		m.list = append(m.list, p)
	case p.depth < m.list[i].depth:
		m.list[i] = p
	case p.depth == m.list[i].depth:
		m.list[i].twin = goName(p.owner) + "." + p.field.Name
	}
}

func (m *members) fail(t reflect.Type, f reflect.StructField, format string, args ...any) {
	m.errs = append(m.errs, fieldError(t, f, format, args...))
}

func fieldError(t reflect.Type, f reflect.StructField, format string, args ...any) error {
	return fmt.Errorf("type %s: field %s: %s", goName(t), f.Name, fmt.Sprintf(format, args...))
}

// quotable reports whether encoding/json applies the option "string" to a type.
func quotable(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	_, ok := zero(t.Kind())
	return ok && !marshalsJSON(t) && !marshalsText(t)
}
