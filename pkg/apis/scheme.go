package apis

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Register registers everything the resource needs in a scheme: the types of
// all versions, the hub's as internal version as well, defaults, conversions,
// and the fields that can be selected. Types that are registered already stay,
// and so do the defaults of types for which there is no option.
func (d *Definition) Register(s *runtime.Scheme, hub schema.GroupVersion) error {
	if err := d.Err(); err != nil {
		return err
	}
	internal := schema.GroupVersion{Group: hub.Group, Version: runtime.APIVersionInternal}
	errs := []error{d.registerTypes(s, hub, d.hub), d.registerTypes(s, internal, d.hub)}
	for _, spoke := range d.spokes {
		gv := schema.GroupVersion{Group: hub.Group, Version: spoke.version}
		errs = append(errs, d.registerTypes(s, gv, spoke.types), d.registerConversions(s, spoke))
	}
	if len(d.selectable) > 0 {
		for _, gv := range d.served(hub) {
			errs = append(errs, s.AddFieldLabelConversionFunc(gv.WithKind(d.kind), d.fieldLabel))
		}
	}
	if d.scale != nil {
		errs = append(errs, registerScale(s))
	}
	for _, b := range d.bodies {
		errs = append(errs, b.register(s, append(d.served(hub), internal)))
	}
	d.registerDefaults(s)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("resource %q: %w", d.name, err)
	}
	return nil
}

func (d *Definition) registerTypes(s *runtime.Scheme, gv schema.GroupVersion, t goTypes) error {
	return errors.Join(
		register(s, gv.WithKind(d.kind), t.newObject()),
		register(s, gv.WithKind(d.kind+"List"), t.newList()),
	)
}

// register adds a type where the scheme itself would panic: when the kind is
// registered for another type.
func register(s *runtime.Scheme, gvk schema.GroupVersionKind, obj runtime.Object) error {
	have, known := s.AllKnownTypes()[gvk]
	if want := reflect.TypeOf(obj).Elem(); known && have != want {
		return fmt.Errorf("%s is registered for *%s, not *%s; set the kind with apis.Kind", gvk, have, want)
	}
	s.AddKnownTypeWithName(gvk, obj)
	return nil
}

func (d *Definition) registerConversions(s *runtime.Scheme, v spoke) error {
	return errors.Join(
		s.AddConversionFunc(v.types.newObject(), d.hub.newObject(), v.toHub.function),
		s.AddConversionFunc(d.hub.newObject(), v.types.newObject(), v.fromHub.function),
		s.AddConversionFunc(v.types.newList(), d.hub.newList(), v.toHub.list),
		s.AddConversionFunc(d.hub.newList(), v.types.newList(), v.fromHub.list),
	)
}

// registerDefaults leaves types without defaults alone: their package may have
// registered its own.
func (d *Definition) registerDefaults(s *runtime.Scheme) {
	if len(d.defaults) > 0 {
		addDefaults(s, d.hub, d.defaults)
	}
	for _, spoke := range d.spokes {
		var fills []func(runtime.Object)
		for _, def := range d.spokeDefaults {
			if def.object == spoke.types.object {
				fills = append(fills, def.fill)
			}
		}
		if len(fills) > 0 {
			addDefaults(s, spoke.types, fills)
		}
	}
}

func addDefaults(s *runtime.Scheme, t goTypes, fills []func(runtime.Object)) {
	one := func(obj runtime.Object) error {
		for _, fill := range fills {
			fill(obj)
		}
		return nil
	}
	s.AddTypeDefaultingFunc(t.newObject(), func(obj any) { _ = one(obj.(runtime.Object)) })
	// The only error is that of a type without items, which Err reports.
	s.AddTypeDefaultingFunc(t.newList(), func(list any) { _ = meta.EachListItem(list.(runtime.Object), one) })
}

// fieldLabel says which fields a selector may name; the error becomes a 400.
func (d *Definition) fieldLabel(label, value string) (string, string, error) {
	if _, ok := d.selectable[label]; ok || label == "metadata.name" || label == "metadata.namespace" {
		return label, value, nil
	}
	names := append([]string{"metadata.name", "metadata.namespace"}, slices.Sorted(maps.Keys(d.selectable))...)
	return "", "", fmt.Errorf("%q is not a known field selector for %s: use one of %s",
		label, d.name, strings.Join(names, ", "))
}

// registerScale adds the Scale kind that /scale reads and answers with. The
// handlers decode into the internal version of whatever kind they serve.
func registerScale(s *runtime.Scheme) error {
	gvk := autoscalingv1.SchemeGroupVersion.WithKind("Scale")
	return errors.Join(
		register(s, gvk, &autoscalingv1.Scale{}),
		register(s, gvk.GroupKind().WithVersion(runtime.APIVersionInternal), &autoscalingv1.Scale{}),
	)
}
