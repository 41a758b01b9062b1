package planetest

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// Converts has the test fail when the object, read in another version such as
// "v2", is not the wanted one. What may be left out of it is as for
// [Definition.Defaults]. See [Convert] for conversions by a function.
func (d *Definition) Converts(object any, version string, want any) *Definition {
	d.t.Helper()
	o, w := d.object(object), d.object(want)
	ctx := contextOf(d.t)
	var got *unstructured.Unstructured
	err := d.lend(ctx, o, func(_ dynamic.ResourceInterface, stored *unstructured.Unstructured) (err error) {
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

// RoundTrips has the test fail when the object loses something on its way to one
// of the versions and back.
func (d *Definition) RoundTrips(object any, versions ...string) *Definition {
	d.t.Helper()
	o := d.object(object)
	ctx := contextOf(d.t)
	from := o.GroupVersionKind().Version
	for _, version := range versions {
		var before, there, back *unstructured.Unstructured
		err := d.lend(ctx, o, func(_ dynamic.ResourceInterface, stored *unstructured.Unstructured) (err error) {
			if before, err = d.readAt(ctx, stored, from); err == nil {
				there, err = d.readAt(ctx, stored, version)
			}
			return err
		})
		if err == nil {
			// The same is written anew: that it comes from another version is not
			// known of it any more.
			there.SetResourceVersion("")
			there.SetUID("")
			there.SetManagedFields(nil)
			err = d.lend(ctx, there, func(_ dynamic.ResourceInterface, stored *unstructured.Unstructured) (err error) {
				back, err = d.readAt(ctx, stored, from)
				return err
			})
		}
		if err != nil {
			d.t.Errorf("%s does not convert to %s and back: %v%s", describe(o), version, err, excerpt(o))
			continue
		}
		// What was read first may have lost something on the way into the storage.
		d.same(describe(o)+" after a round trip by "+version, back, overlay(before, o))
	}
	return d
}

// overlay is an object with all that a second one says.
func overlay(o, over *unstructured.Unstructured) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: overlayMap(o.DeepCopy().Object, over.DeepCopy().Object)}
}

func overlayMap(m, over map[string]any) map[string]any {
	for key, value := range over {
		below, both := value.(map[string]any)
		if inside, ok := m[key].(map[string]any); ok && both {
			m[key] = overlayMap(inside, below)
			continue
		}
		m[key] = value
	}
	return m
}

// readAt reads an object in a version.
func (d *Definition) readAt(ctx context.Context, stored *unstructured.Unstructured, version string) (*unstructured.Unstructured, error) {
	resource, err := d.at(stored, version)
	if err != nil {
		return nil, err
	}
	return resource.Get(ctx, stored.GetName(), metav1.GetOptions{})
}

// Migrate has every object of the CRDs stored in the storage version, and the CRDs
// say so in status.storedVersions, as a storage version migration does: then an
// [Definition.Update] may leave out the versions before.
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
	storage := ""
	for _, v := range versionsOf(crd) {
		if v.storage {
			storage = v.name
		}
	}
	resource := d.plane.admin().Dynamic().Resource(resourceOf(crd, storage))
	// A write that changes nothing is done when the object is stored in another version.
	for next := ""; ; {
		list, err := resource.List(ctx, metav1.ListOptions{Limit: migrationPage, Continue: next})
		if err != nil {
			return err
		}
		for i := range list.Items {
			o := &list.Items[i]
			if _, err := resource.Namespace(o.GetNamespace()).Update(ctx, o, metav1.UpdateOptions{FieldManager: FieldManager}); err != nil {
				return fmt.Errorf("%s: %w", describe(o), err)
			}
		}
		if next = list.GetContinue(); next == "" {
			break
		}
	}
	return retryConflict(ctx, func() error {
		crd, err := definitions.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := unstructured.SetNestedStringSlice(crd.Object, []string{storage}, "status", "storedVersions"); err != nil {
			return err
		}
		_, err = definitions.UpdateStatus(ctx, crd, metav1.UpdateOptions{FieldManager: FieldManager})
		return err
	})
}

// migrationPage is how many objects are read at once.
const migrationPage = 500
