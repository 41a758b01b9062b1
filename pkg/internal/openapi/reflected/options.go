package reflected

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// Option says something about a type that openapi-gen would read from its comments.
type Option func(*settings)

// Enum lists the values of a named string type, like the marker +enum with the type's constants.
func Enum[T ~string](values ...T) Option {
	return func(s *settings) {
		typ := reflect.TypeFor[T]()
		if typ.PkgPath() == "" {
			s.errs = append(s.errs, fmt.Errorf("option Enum: %s is not a type that you defined: name one", typ))
			return
		}
		if len(values) == 0 {
			s.errs = append(s.errs, fmt.Errorf("option Enum for %s: no values given", goName(typ)))
			return
		}
		for _, v := range values {
			s.enums[typ] = append(s.enums[typ], string(v))
		}
	}
}

// Describe sets the description of a field, given by its Go name in the struct that declares it, or of the type
// itself when field is empty. It overrides SwaggerDoc.
func Describe(goType reflect.Type, field, text string) Option {
	return func(s *settings) {
		if goType == nil {
			s.errs = append(s.errs, fmt.Errorf("option Describe for field %q: the type is nil", field))
			return
		}
		s.texts[target{kind: "Describe", typ: deref(goType), field: field}] = text
	}
}

// ListType says how server-side apply merges a list, like the markers +listType and +listMapKey. The field is given
// by its Go name in the struct that declares it; kind is "atomic", "set" or "map", and mapKeys are the JSON names that
// tell the entries of a "map" apart.
// See https://kubernetes.io/docs/reference/using-api/server-side-apply/#merge-strategy.
func ListType(goType reflect.Type, field, kind string, mapKeys ...string) Option {
	return func(s *settings) {
		if goType == nil {
			s.errs = append(s.errs, fmt.Errorf("option ListType for field %q: the type is nil", field))
			return
		}
		key := target{kind: "ListType", typ: deref(goType), field: field}
		s.lists[key] = listType{kind: kind, keys: mapKeys}
	}
}

// target is the subject of an option.
type target struct {
	kind  string // the option's name
	typ   reflect.Type
	field string
}

type listType struct {
	kind string
	keys []string
}

// settings are the options of one [Build].
type settings struct {
	enums map[reflect.Type][]string
	texts map[target]string
	lists map[target]listType
	errs  []error
}

func newSettings() *settings {
	return &settings{
		enums: map[reflect.Type][]string{},
		texts: map[target]string{},
		lists: map[target]listType{},
	}
}

// unused returns an error for each option whose target is not among the defined types: most likely a typing error.
func (s *settings) unused(used map[target]bool) []error {
	all := slices.Concat(slices.Collect(maps.Keys(s.texts)), slices.Collect(maps.Keys(s.lists)))
	for typ := range s.enums {
		all = append(all, target{kind: "Enum", typ: typ})
	}
	slices.SortFunc(all, compareTargets)
	var errs []error
	for _, t := range all {
		if used[t] {
			continue
		}
		what := goName(t.typ)
		if t.field != "" {
			what += "." + t.field
		}
		errs = append(errs, fmt.Errorf(
			"option %s for %s: no generated definition has it: check the Go names, and that a root uses the type",
			t.kind, what))
	}
	return errs
}
