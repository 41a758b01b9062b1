package planetest

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

func dryRun() []string { return []string{metav1.DryRunAll} }

// try creates an object and removes it.
func (d *Definition) try(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if !d.hasStatus(o) {
		d.lent.RLock()
		defer d.lent.RUnlock()
		return d.create(ctx, o, dryRun())
	}
	// A status can only be written to a stored object.
	var got *unstructured.Unstructured
	err := d.storeWhile(ctx, o, func(stored *unstructured.Unstructured) error {
		got = stored
		return nil
	})
	return got, err
}

// hasStatus tells whether an object has a status that is written by itself.
func (d *Definition) hasStatus(o *unstructured.Unstructured) bool {
	s, err := d.served(o.GroupVersionKind())
	return err == nil && s.status && o.Object["status"] != nil
}

func (d *Definition) create(ctx context.Context, o *unstructured.Unstructured, dry []string) (*unstructured.Unstructured, error) {
	o = o.DeepCopy()
	resource, err := d.plane.resource(o)
	if err != nil {
		return nil, err
	}
	return resource.Create(ctx, o, metav1.CreateOptions{
		DryRun: dry, FieldManager: FieldManager, FieldValidation: metav1.FieldValidationStrict,
	})
}

// store creates an object with its status. When the status is refused, the object
// is returned with the error.
func (d *Definition) store(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	stored, err := d.create(ctx, o, nil)
	if err != nil || !d.hasStatus(o) {
		return stored, err
	}
	changed := stored.DeepCopy()
	changed.Object["status"] = o.Object["status"]
	written, err := d.updateStatus(ctx, changed, nil)
	if err != nil {
		return stored, err
	}
	return written, nil
}

func (d *Definition) updateStatus(ctx context.Context, o *unstructured.Unstructured, dry []string) (*unstructured.Unstructured, error) {
	resource, err := d.plane.resource(o)
	if err != nil {
		return nil, err
	}
	return resource.UpdateStatus(ctx, o, updateOptions(dry))
}

func updateOptions(dry []string) metav1.UpdateOptions {
	return metav1.UpdateOptions{DryRun: dry, FieldManager: FieldManager, FieldValidation: metav1.FieldValidationStrict}
}

// storeWhile stores an object while f looks at it.
func (d *Definition) storeWhile(ctx context.Context, o *unstructured.Unstructured, f func(*unstructured.Unstructured) error) (err error) {
	d.lent.Lock()
	defer d.lent.Unlock()
	stored, err := d.store(ctx, o)
	if stored != nil {
		defer func() { err = errors.Join(err, d.remove(ctx, stored)) }()
	}
	if err != nil {
		return err
	}
	return f(stored)
}

// remove deletes an object at once, whatever finalizers it has: no controller handles them.
func (d *Definition) remove(ctx context.Context, o *unstructured.Unstructured) error {
	ctx, cancel := d.plane.within(context.WithoutCancel(ctx))
	defer cancel()
	resource, err := d.plane.admin().resource(o)
	if err != nil {
		return err
	}
	if len(o.GetFinalizers()) > 0 {
		_, err := resource.Patch(ctx, o.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("remove the finalizers of %s: %w", describe(o), err)
		}
	}
	err = resource.Delete(ctx, o.GetName(), metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s: %w", describe(o), err)
	}
	return nil
}

// isRefusal tells whether a server refuses an object for what it is.
func isRefusal(err error) bool {
	switch apierrors.ReasonForError(err) {
	case metav1.StatusReasonNotFound, metav1.StatusReasonAlreadyExists, metav1.StatusReasonConflict, metav1.StatusReasonTimeout,
		metav1.StatusReasonServerTimeout, metav1.StatusReasonTooManyRequests, metav1.StatusReasonUnauthorized,
		metav1.StatusReasonServiceUnavailable:
		return false
	}
	status := apierrors.APIStatus(nil)
	return errors.As(err, &status)
}

// read reads a stored object in the version of the given one.
func (d *Definition) read(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	resource, err := d.plane.resource(o)
	if err != nil {
		return nil, err
	}
	return resource.Get(ctx, o.GetName(), metav1.GetOptions{})
}

// readAt reads a stored object in another version of its kind.
func (d *Definition) readAt(ctx context.Context, stored *unstructured.Unstructured, version string) (*unstructured.Unstructured, error) {
	kind := stored.GroupVersionKind()
	kind.Version = version
	if _, err := d.served(kind); err != nil {
		return nil, err
	}
	other := stored.DeepCopy()
	other.SetGroupVersionKind(kind)
	return d.read(ctx, other)
}
