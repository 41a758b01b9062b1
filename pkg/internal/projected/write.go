package projected

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/storage"
)

// Create implements storage.Interface.
func (s *Store) Create(ctx context.Context, key string, obj, out runtime.Object, _ uint64) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	view := obj.(Object)
	if view.GetResourceVersion() != "" {
		return storage.ErrResourceVersionSetOnCreate
	}
	created, err := s.create(ctx, key, view)
	if err != nil {
		return err
	}
	return assign(out, created)
}

// create makes the object below, and returns what the client has made.
func (s *Store) create(ctx context.Context, key string, view Object) (Object, error) {
	below := &unstructured.Unstructured{Object: map[string]any{}}
	below.SetNamespace(view.GetNamespace())
	below.SetName(view.GetName())
	if err := s.accept(s.Cache.NewFunc().(Object), view, below); err != nil {
		return nil, err
	}
	made, err := s.Below.Create(ctx, below)
	if apierrors.IsAlreadyExists(err) {
		return nil, storage.NewKeyExistsError(key, 0)
	}
	if err != nil {
		return nil, s.explain(ctx, err)
	}
	return s.written(made, view)
}

// accept puts an object of the view, which was another one before, into the one below.
func (s *Store) accept(was, view Object, below *unstructured.Unstructured) error {
	if s.Accept == nil {
		return apierrors.NewMethodNotSupported(s.Resource, "write")
	}
	if err := s.acceptMetadata(was, view, below); err != nil {
		return err
	}
	if err := s.Accept(view, below); err != nil {
		return s.refused(view.GetName(), err)
	}
	return nil
}

// written is the answer to a write. A client that wrote what it does not see sees that once.
func (s *Store) written(below, wrote Object) (Object, error) {
	view, shown, err := s.publish(below)
	if err != nil || shown {
		return view, err
	}
	view = wrote.DeepCopyObject().(Object)
	identify(below, view)
	return view, nil
}

// conflict is the error of a write below that met another one.
type conflict struct{ error }

// met tells of a write below that failed.
func (s *Store) met(ctx context.Context, err error) error {
	if apierrors.IsConflict(err) {
		return conflict{s.explain(ctx, err)}
	}
	return s.explain(ctx, err)
}

// again calls a write until it meets no other one, or its time is over.
func (s *Store) again(ctx context.Context, write func(context.Context) error) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	pause := wait.Backoff{Duration: time.Millisecond, Factor: 2, Jitter: 1, Steps: 8}
	for {
		err := write(ctx)
		other, is := err.(conflict) //nolint:errorlint // it is not wrapped
		if !is {
			return err
		}
		select {
		case <-ctx.Done():
			return other.error
		case <-time.After(pause.Step()):
		}
	}
}

// now reads an object for a write. Both are nil if there is none, and if it is not shown.
func (s *Store) now(ctx context.Context, key string) (below *unstructured.Unstructured, view Object, err error) {
	namespace, name := s.place(key)
	if name == "" {
		return nil, nil, nil
	}
	below, err = s.Below.GetToWrite(ctx, namespace, name)
	if isMissing(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, s.explain(ctx, err)
	}
	view, shown, err := s.publish(below)
	if err != nil {
		return nil, nil, s.explain(ctx, err)
	}
	if !shown {
		return nil, nil, nil
	}
	return below, view.DeepCopyObject().(Object), nil
}

// GuaranteedUpdate implements storage.Interface.
//
//nolint:revive // the parameters are storage.Interface's
func (s *Store) GuaranteedUpdate(
	ctx context.Context, key string, dest runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, try storage.UpdateFunc, _ runtime.Object,
) error {
	return s.again(ctx, func(ctx context.Context) error {
		below, was, err := s.now(ctx, key)
		if err != nil {
			return err
		}
		if was == nil && !ignoreNotFound {
			return storage.NewKeyNotFoundError(key, 0)
		}
		view, err := s.tried(key, was, preconditions, try)
		if err != nil {
			return err
		}
		var made Object
		switch {
		case was == nil:
			made, err = s.create(ctx, key, view)
		case deletes(was, view):
			made, err = s.mark(ctx, below, was, view)
		default:
			made, err = s.update(ctx, below, was, view)
		}
		if err != nil {
			return err
		}
		return assign(dest, made)
	})
}

// deletes tells whether an update is a deletion that waits for finalizers, or adds one to wait for.
func deletes(was, view Object) bool {
	return view.GetDeletionTimestamp() != nil &&
		(was.GetDeletionTimestamp() == nil || policy(was, view) != metav1.DeletePropagationBackground)
}

// tried is what an update makes of an object, which is nil if there is none.
func (s *Store) tried(key string, was Object, preconditions *storage.Preconditions, try storage.UpdateFunc) (Object, error) {
	existing := s.Cache.NewFunc().(Object)
	if was != nil {
		existing = was.DeepCopyObject().(Object)
	}
	if err := preconditions.Check(key, existing); err != nil {
		return nil, err
	}
	version, err := s.Versioner().ObjectResourceVersion(existing)
	if err != nil {
		return nil, err
	}
	view, _, err := try(existing, storage.ResponseMeta{ResourceVersion: version})
	if err != nil {
		return nil, err
	}
	return view.(Object), nil
}

// update writes an object below, unless nothing of it changes. Where the status below has a
// sub-resource of its own, that is a second write.
func (s *Store) update(ctx context.Context, below *unstructured.Unstructured, was, view Object) (Object, error) {
	wanted := below.DeepCopy()
	if err := s.accept(was, view, wanted); err != nil {
		return nil, err
	}
	written := below
	var err error
	if !reflect.DeepEqual(withoutStatus(wanted), withoutStatus(below)) {
		if written, err = s.Below.Update(ctx, wanted, ""); err != nil {
			return nil, s.met(ctx, err)
		}
	}
	if !reflect.DeepEqual(statusOf(wanted), statusOf(written)) {
		wanted.SetResourceVersion(written.GetResourceVersion())
		next, err := s.Below.Update(ctx, wanted, "status")
		if apierrors.IsNotFound(err) { // there is no such sub-resource
			next, err = s.Below.Update(ctx, wanted, "")
		}
		if err != nil {
			return nil, s.met(ctx, err)
		}
		written = next
	}
	return s.written(written, view)
}

func statusOf(obj *unstructured.Unstructured) any { return obj.Object["status"] }

func withoutStatus(obj *unstructured.Unstructured) map[string]any {
	rest := maps.Clone(obj.Object)
	delete(rest, "status")
	return rest
}

// policy is what the finalizers that an update adds ask of a deletion, as upstream writes it down:
// https://github.com/kubernetes/apiserver/blob/v0.37.2/pkg/registry/generic/registry/store.go#L1038
func policy(was, view Object) metav1.DeletionPropagation {
	for finalizer, policy := range map[string]metav1.DeletionPropagation{
		metav1.FinalizerOrphanDependents: metav1.DeletePropagationOrphan,
		metav1.FinalizerDeleteDependents: metav1.DeletePropagationForeground,
	} {
		if slices.Contains(view.GetFinalizers(), finalizer) && !slices.Contains(was.GetFinalizers(), finalizer) {
			return policy
		}
	}
	return metav1.DeletePropagationBackground
}

// mark deletes an object that has finalizers: it stays below until they are removed.
func (s *Store) mark(ctx context.Context, below *unstructured.Unstructured, was, view Object) (Object, error) {
	if err := s.remove(ctx, below, policy(was, view)); err != nil {
		return nil, err
	}
	left, err := s.Below.GetToWrite(ctx, below.GetNamespace(), below.GetName())
	if isMissing(err) {
		return view, nil
	}
	if err != nil {
		return nil, s.explain(ctx, err)
	}
	return s.written(left, view)
}

// remove deletes an object below, unless it has changed.
func (s *Store) remove(ctx context.Context, below *unstructured.Unstructured, policy metav1.DeletionPropagation) error {
	if s.Accept == nil {
		return apierrors.NewMethodNotSupported(s.Resource, "delete")
	}
	uid, version := below.GetUID(), below.GetResourceVersion()
	err := s.Below.Delete(ctx, below.GetNamespace(), below.GetName(), metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}, PropagationPolicy: &policy,
	})
	if isMissing(err) {
		return nil
	}
	return s.met(ctx, err)
}

// Delete implements storage.Interface.
//
//nolint:revive // the parameters are storage.Interface's
func (s *Store) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, _ runtime.Object, _ storage.DeleteOptions,
) error {
	return s.again(ctx, func(ctx context.Context) error {
		below, view, err := s.now(ctx, key)
		if err != nil {
			return err
		}
		if view == nil {
			return storage.NewKeyNotFoundError(key, 0)
		}
		if err := preconditions.Check(key, view); err != nil {
			return err
		}
		if err := validate(ctx, view); err != nil {
			return err
		}
		if err := s.remove(ctx, below, metav1.DeletePropagationBackground); err != nil {
			return err
		}
		return assign(out, view)
	})
}
