package planetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
)

// Definition is one or several CRDs under test: their schemas, CEL rules, defaults and
// conversions, and what happens to stored objects when they change. Make one with [CRD]
// or [Plane.CRD]. A plane checks all of it, so the answers are those of a server.
//
//	widgets := planetest.CRD(t, planetest.Files("config/crd/bases/*.yaml"))
//	widgets.Accepts(`{apiVersion: example.com/v1, kind: Widget, spec: {size: 1}}`)
//	widgets.Rejects(`{apiVersion: example.com/v1, kind: Widget, spec: {size: 0}}`, "should be greater than or equal to 1")
//
// Objects are YAML or JSON of one object, as a string or []byte, maps, or Go values that are
// objects: unstructured ones, types with apiVersion and kind, and types of [Options.Scheme].
// One without a name is called "test"; stored ones need a name. Unknown fields are errors.
// Where the CRD has the sub-resource, a status is written after the object is created.
//
// Only [Definition.Stores] keeps objects: other methods remove them when they
// return, so that cases are independent of each other. Methods may be called by
// several tests at the same time, each with a view of its own: see [Definition.For].
type Definition struct {
	t     TB
	plane *Plane
	*definitions
}

// definitions is what all views of a definition share.
type definitions struct {
	mu    sync.Mutex // kinds
	kinds map[schema.GroupVersionKind]served
	// lent is locked while an object is stored for a look, one at a time, and read-locked
	// by calls that must not see it: objects of two tests may have the same name.
	lent sync.RWMutex
}

// served is what a CRD says of a version that it serves.
type served struct {
	crd    string
	status bool // there is a status sub-resource
}

// CRD starts a plane with the CRDs of a source, and nothing else but namespaces
// and the given parts, such as [Convert].
func CRD(t TB, crds Source, parts ...controlplane.Part) *Definition {
	t.Helper()
	return Options{}.CRD(t, crds, parts...)
}

// CRD is [CRD] with options.
func (o Options) CRD(t TB, crds Source, parts ...controlplane.Part) *Definition {
	t.Helper()
	o.NoDefaults = true
	few := merge([]controlplane.Part{core.Namespaces{}, crd.Definitions{}}, flatten(parts))
	return o.Start(t, few...).CRD(t, crds)
}

// CRD applies CRDs for a test of them. Those that the plane has are updated,
// unless they are the same.
func (p *Plane) CRD(t TB, crds Source) *Definition {
	t.Helper()
	d := &Definition{t: t, plane: p, definitions: &definitions{kinds: map[schema.GroupVersionKind]served{}}}
	if err := d.install(contextOf(t), crds); err != nil {
		t.Fatalf("CRD: %v", err)
	}
	return d
}

// For is the definition for another test, such as one of a table: it fails that test.
func (d *Definition) For(t TB) *Definition {
	return &Definition{t: t, plane: d.plane, definitions: d.definitions}
}

// Plane is the plane that has the CRDs.
func (d *Definition) Plane() *Plane { return d.plane }

// Accepts fails the test when the plane refuses to create one of the objects.
func (d *Definition) Accepts(objects ...any) *Definition {
	d.t.Helper()
	for _, given := range objects {
		o := d.object(given)
		if _, err := d.try(contextOf(d.t), o); err != nil {
			d.t.Errorf("%s is not accepted: %v%s", describe(o), err, excerpt(o))
		}
	}
	return d
}

// Rejects fails the test when the plane creates the object, or the error does
// not contain all of the messages.
func (d *Definition) Rejects(object any, messages ...string) *Definition {
	d.t.Helper()
	o := d.object(object)
	_, err := d.try(contextOf(d.t), o)
	d.refused(o, err, messages)
	return d
}

// Defaults fails the test when the created object is not the wanted one: with all
// defaults, and without pruned fields. Fields that the server sets in metadata,
// and a name and namespace that were not given, may be left out.
func (d *Definition) Defaults(object, want any) *Definition {
	d.t.Helper()
	o, w := d.object(object), d.object(want)
	got, err := d.try(contextOf(d.t), o)
	if err != nil {
		d.t.Errorf("%s is not accepted: %v%s", describe(o), err, excerpt(o))
		return d
	}
	d.same(describe(o)+" with defaults", got, w)
	return d
}

// object reads an object in any form that a test may give, or ends the test.
func (d *Definition) object(given any) *unstructured.Unstructured {
	d.t.Helper()
	o, err := toObject(d.plane.server.scheme, given)
	if err == nil {
		_, err = d.served(o.GroupVersionKind())
	}
	if err != nil {
		d.t.Fatalf("CRD: %v%s", err, excerpt(o))
	}
	if o.GetName() == "" && o.GetGenerateName() == "" {
		o.SetName(unnamed)
	}
	return o
}

// unnamed is the name of objects that have none.
const unnamed = "test"

// named is like object, for a stored one, which needs a name.
func (d *Definition) named(given any) *unstructured.Unstructured {
	d.t.Helper()
	o := d.object(given)
	if o.GetName() == unnamed {
		d.t.Fatalf("CRD: a stored object needs a name, and not %q%s", unnamed, excerpt(o))
	}
	return o
}

// served is what is known of a version of the CRDs.
func (d *Definition) served(kind schema.GroupVersionKind) (served, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, ok := d.kinds[kind]
	if !ok {
		var names []string
		for k := range d.kinds {
			names = append(names, k.GroupVersion().String()+" "+k.Kind)
		}
		slices.Sort(names)
		return s, fmt.Errorf("%s %s is not served by the CRDs under test: they have %s",
			kind.GroupVersion(), kind.Kind, strings.Join(names, ", "))
	}
	return s, nil
}

// toObject reads an object from one of the forms that a test may give it in.
func toObject(s *runtime.Scheme, given any) (*unstructured.Unstructured, error) {
	switch v := given.(type) {
	case string:
		return toObject(s, []byte(v))
	case []byte:
		all, err := decode("object", v)
		if err == nil && len(all) != 1 {
			err = fmt.Errorf("the text has %d objects, want one", len(all))
		}
		if err != nil {
			return nil, err
		}
		return all[0].Unstructured, nil
	case runtime.Object:
		return toUnstructured(s, v)
	case nil:
		return nil, errors.New("the object is nil")
	}
	// Numbers in a map may have any type, those of the server have one of two.
	data, err := json.Marshal(given)
	if err != nil {
		return nil, fmt.Errorf("object of type %T: %w", given, err)
	}
	return toObject(s, data)
}

// refused fails the test unless the error is a server's refusal of the object,
// for the given reasons.
func (d *Definition) refused(o *unstructured.Unstructured, err error, messages []string) {
	d.t.Helper()
	if err == nil {
		d.t.Errorf("%s is accepted, want it rejected%s%s", describe(o), because(messages), excerpt(o))
		return
	}
	if !isRefusal(err) {
		d.t.Fatalf("%s: %v", describe(o), err)
	}
	for _, message := range messages {
		if !strings.Contains(err.Error(), message) {
			d.t.Errorf("%s is rejected, but not because of %q: %v", describe(o), message, err)
		}
	}
}

func because(messages []string) string {
	if len(messages) == 0 {
		return ""
	}
	return fmt.Sprintf(" because of %q", messages)
}

// same fails the test when an object is not the wanted one.
func (d *Definition) same(what string, got, want *unstructured.Unstructured) {
	d.t.Helper()
	got, want = got.DeepCopy(), want.DeepCopy()
	if want.GetNamespace() == "" {
		want.SetNamespace(got.GetNamespace())
	}
	if want.GetName() == unnamed {
		want.SetName(got.GetName())
	}
	if diff := lineDiff(compared(want), compared(got)); diff != "" {
		d.t.Errorf("%s is not as wanted (-want +got):\n%s", what, diff)
	}
}

// compared is an object as text, without what the server sets in metadata.
func compared(o *unstructured.Unstructured) string {
	normalise(o)
	unstructured.RemoveNestedField(o.Object, "metadata", "generation")
	return asYAML(o)
}

// install applies the CRDs of a source, and waits until they are in force.
func (d *Definition) install(ctx context.Context, crds Source) error {
	all, err := d.definitionsOf(crds)
	if err != nil {
		return err
	}
	ctx, cancel := d.plane.within(ctx)
	defer cancel()
	for _, c := range all {
		if err := d.rollOut(ctx, c); err != nil {
			return fmt.Errorf("%s: %s: %w", c.from, describe(c.Unstructured), err)
		}
	}
	return nil
}

// definitionsOf returns the CRDs of a source, which must have nothing else.
func (d *Definition) definitionsOf(crds Source) ([]sourced, error) {
	all, err := crds(d.plane.server.scheme)
	if err == nil && len(all) == 0 {
		err = errors.New("there is no CRD in the source")
	}
	if err != nil {
		return nil, err
	}
	for _, o := range all {
		if o.GroupVersionKind() != crdKind().WithVersion("v1") {
			return nil, fmt.Errorf("%s: %s of %s is not a CRD of apiextensions.k8s.io/v1",
				o.from, describe(o.Unstructured), o.GetAPIVersion())
		}
	}
	return all, nil
}
