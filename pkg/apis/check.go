package apis

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Err returns everything that is wrong with the definition, or nil.
func (d *Definition) Err() error {
	errs := slices.Clone(d.optionErrs)
	for _, check := range []func() []error{d.checkNames, d.checkTypes, d.checkVersions, d.checkSubresources, d.checkStale} {
		errs = append(errs, check()...)
	}
	if _, err := d.verbSet(); err != nil {
		errs = append(errs, err)
	}
	for i, err := range errs {
		errs[i] = fmt.Errorf("resource %q: %w", d.name, err)
	}
	return errors.Join(errs...)
}

func (d *Definition) checkNames() []error {
	names := map[string][]string{
		"name":       {d.name},
		"singular":   {d.singular},
		"short name": d.shortNames,
		"category":   d.categories,
	}
	var errs []error
	for _, what := range slices.Sorted(maps.Keys(names)) {
		for _, name := range names[what] {
			for _, problem := range validation.IsDNS1035Label(name) {
				errs = append(errs, fmt.Errorf("%s %q: %s", what, name, problem))
			}
		}
	}
	if problems := validation.IsDNS1035Label(strings.ToLower(d.kind)); len(problems) > 0 || d.kind[0] < 'A' || d.kind[0] > 'Z' {
		errs = append(errs, fmt.Errorf("kind %q: must be letters and digits and begin with a capital, like Apple", d.kind))
	}
	if d.nameValidation == nil {
		errs = append(errs, errors.New("NameValidation: the function is nil"))
	}
	return errs
}

func (d *Definition) checkTypes() []error {
	var errs []error
	for _, t := range d.types() {
		if t.object.Kind() != reflect.Struct {
			errs = append(errs, fmt.Errorf("%s is not a struct", t.object))
			continue
		}
		items, err := meta.GetItemsPtr(t.newList())
		if err != nil {
			errs = append(errs, fmt.Errorf("list %s: %w", t.list, err))
		} else if e := reflect.TypeOf(items).Elem().Elem(); e != t.object && e != reflect.PointerTo(t.object) {
			errs = append(errs, fmt.Errorf("list %s: its items are %s, not %s", t.list, e, t.object))
		}
		if !d.status {
			continue
		}
		if f, ok := t.object.FieldByName(statusField); t.object == d.hub.object && (!ok || len(f.Index) != 1) {
			errs = append(errs, fmt.Errorf("Status: %s has no field %s", t.object, statusField))
		}
		if !slices.Contains(jsonFields(t.object), "status") {
			errs = append(errs, fmt.Errorf("Status: %s has no JSON field status", t.object))
		}
	}
	return errs
}

func (d *Definition) checkVersions() []error {
	var errs []error
	seen := map[string]bool{}
	types := map[reflect.Type]bool{d.hub.object: true}
	for _, s := range d.spokes {
		if problems := validation.IsDNS1035Label(s.version); len(problems) > 0 {
			errs = append(errs, fmt.Errorf("version %q: %s", s.version, strings.Join(problems, "; ")))
		}
		if seen[s.version] {
			errs = append(errs, fmt.Errorf("version %q: defined twice", s.version))
		}
		if types[s.types.object] {
			errs = append(errs, fmt.Errorf("version %q: %s is the type of another version", s.version, s.types.object))
		}
		seen[s.version], types[s.types.object] = true, true
	}
	for _, def := range d.spokeDefaults {
		if def.object == d.hub.object || !types[def.object] {
			errs = append(errs, fmt.Errorf("DefaultVersion is for *%s, which is not the type of any Version", def.object))
		}
	}
	return errs
}

func (d *Definition) checkSubresources() []error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(d.subresources)) {
		if problems := validation.IsDNS1035Label(name); len(problems) > 0 {
			errs = append(errs, fmt.Errorf("sub-resource %q: %s", name, strings.Join(problems, "; ")))
		}
		if (name == "status" && d.status) || (name == "scale" && d.scale != nil) {
			errs = append(errs, fmt.Errorf("sub-resource %q: an option already defines it: remove one of the two", name))
		}
	}
	return errs
}
