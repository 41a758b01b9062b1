package planetest

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/retry"
)

// Converts fails the test when the object, read in another version such as
// "v2", is not the wanted one. The same fields may be left out as for
// [Definition.Defaults]. See [Convert] for conversions by a function.
func (d *Definition) Converts(object any, version string, want any) *Definition {
	d.t.Helper()
	o, w := d.object(object), d.object(want)
	ctx := contextOf(d.t)
	var got *unstructured.Unstructured
	err := d.storeWhile(ctx, o, func(stored *unstructured.Unstructured) (err error) {
		got, err = d.readAt(ctx, stored, version)
		return err
	})
	if err != nil {
		d.t.Errorf("%s does not convert to %s: %v%s", describe(o), version, err, excerpt(o))
		return d
	}
	d.same(describe(o)+" in "+version, got, w)
	return d
}

// RoundTrips fails the test when the object loses something on its way to one of
// the versions and back.
func (d *Definition) RoundTrips(object any, versions ...string) *Definition {
	d.t.Helper()
	o := d.object(object)
	ctx := contextOf(d.t)
	from := o.GroupVersionKind().Version
	for _, version := range versions {
		var before, there, back *unstructured.Unstructured
		err := d.storeWhile(ctx, o, func(stored *unstructured.Unstructured) (err error) {
			if before, err = d.readAt(ctx, stored, from); err == nil {
				there, err = d.readAt(ctx, stored, version)
			}
			return err
		})
		if err == nil {
			// Write it as a new object: the server must not know that it comes
			// from another version.
			there.SetResourceVersion("")
			there.SetUID("")
			there.SetManagedFields(nil)
			err = d.storeWhile(ctx, there, func(stored *unstructured.Unstructured) (err error) {
				back, err = d.readAt(ctx, stored, from)
				return err
			})
		}
		if err != nil {
			d.t.Errorf("%s does not convert to %s and back: %v%s", describe(o), version, err, excerpt(o))
			continue
		}
		// The object may have lost something when it was first stored.
		want := &unstructured.Unstructured{Object: overlay(before.Object, o.DeepCopy().Object)}
		d.same(describe(o)+" after a round trip by "+version, back, want)
	}
	return d
}

// overlay puts all fields of a second object over those of the first.
func overlay(object, over map[string]any) map[string]any {
	for key, value := range over {
		below, both := value.(map[string]any)
		if inside, ok := object[key].(map[string]any); ok && both {
			object[key] = overlay(inside, below)
			continue
		}
		object[key] = value
	}
	return object
}

// Migrate stores every object of the CRDs in the storage version, and says so in
// status.storedVersions, as a storage version migration does: then a
// [Definition.Update] may leave out older versions.
func (d *Definition) Migrate() *Definition {
	d.t.Helper()
	ctx, cancel := d.plane.within(contextOf(d.t))
	defer cancel()
	for _, name := range d.names() {
		if err := d.migrate(ctx, name); err != nil {
			d.t.Fatalf("migrate the objects of %s: %v", name, err)
		}
	}
	return d
}

func (d *Definition) migrate(ctx context.Context, name string) error {
	definitions := d.plane.admin().crds()
	crd, err := definitions.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	versions := versionsOf(crd)
	stored := versions[slices.IndexFunc(versions, func(v version) bool { return v.storage })].name // the server wants just one
	resource := d.plane.admin().Dynamic().Resource(resourceOf(crd, stored))
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return resource.List(ctx, options)
	})
	err = pages.EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
		// The server skips a write that changes nothing, unless the object is stored in
		// another version.
		o, _ := item.(*unstructured.Unstructured)
		if _, err := resource.Namespace(o.GetNamespace()).Update(ctx, o, metav1.UpdateOptions{FieldManager: FieldManager}); err != nil {
			return fmt.Errorf("%s: %w", describe(o), err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		crd, err := definitions.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := unstructured.SetNestedStringSlice(crd.Object, []string{stored}, "status", "storedVersions"); err != nil {
			return err
		}
		_, err = definitions.UpdateStatus(ctx, crd, metav1.UpdateOptions{FieldManager: FieldManager})
		return err
	})
}
