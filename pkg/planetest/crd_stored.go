package planetest

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Stores creates objects that stay until the test ends, for checks after a
// [Definition.Update] of the CRDs. The test ends when the plane refuses one.
func (d *Definition) Stores(objects ...any) *Definition {
	d.t.Helper()
	ctx := contextOf(d.t)
	for _, given := range objects {
		o := d.named(given)
		d.lent.RLock()
		stored, err := d.store(ctx, o)
		d.lent.RUnlock()
		if stored != nil {
			d.t.Cleanup(func() {
				d.t.Helper()
				// The version it was written in may be gone by now.
				if !d.inServedVersion(stored) {
					return
				}
				if err := d.remove(ctx, stored); err != nil {
					d.t.Errorf("CRD: %v", err)
				}
			})
		}
		if err != nil {
			d.t.Fatalf("store %s: %v%s", describe(o), err, excerpt(o))
		}
	}
	return d
}

// Reads fails the test when a stored object, read in the version of the wanted one,
// differs from it. The same fields may be left out as for [Definition.Defaults].
func (d *Definition) Reads(wants ...any) *Definition {
	d.t.Helper()
	for _, want := range wants {
		w := d.named(want)
		d.lent.RLock()
		got, err := d.read(contextOf(d.t), w)
		d.lent.RUnlock()
		if err != nil {
			d.t.Errorf("%s cannot be read: %v", describe(w), err)
			continue
		}
		d.same(describe(w), got, w)
	}
	return d
}

// AcceptsUpdate fails the test when the plane refuses to update a stored object to the
// given one of the same name: see [Definition.Stores]. The stored object stays as it is.
func (d *Definition) AcceptsUpdate(objects ...any) *Definition {
	d.t.Helper()
	for _, given := range objects {
		o := d.named(given)
		if err := d.tryUpdate(contextOf(d.t), o); err != nil {
			d.t.Errorf("the update of %s is not accepted: %v%s", describe(o), err, excerpt(o))
		}
	}
	return d
}

// RejectsUpdate fails the test when the plane updates the stored object of the same name, or
// the error does not contain all of the messages: for rules about oldSelf, and for values that
// an update of the CRD no longer allows. Invalid values that do not change are accepted
// (https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation-ratcheting).
func (d *Definition) RejectsUpdate(object any, messages ...string) *Definition {
	d.t.Helper()
	o := d.named(object)
	d.refused(o, d.tryUpdate(contextOf(d.t), o), messages)
	return d
}

// tryUpdate updates a stored object in a dry run.
func (d *Definition) tryUpdate(ctx context.Context, o *unstructured.Unstructured) error {
	d.lent.RLock()
	defer d.lent.RUnlock()
	o = o.DeepCopy()
	resource, err := d.plane.resource(o)
	if err != nil {
		return err
	}
	stored, err := resource.Get(ctx, o.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no object to update: store it first with Stores: %w", err)
	}
	if err != nil {
		return err
	}
	o.SetResourceVersion(stored.GetResourceVersion())
	_, err = resource.Update(ctx, o, updateOptions(dryRun()))
	if err == nil && d.hasStatus(o) {
		stored.Object["status"] = o.Object["status"]
		_, err = d.updateStatus(ctx, stored, dryRun())
	}
	return err
}
