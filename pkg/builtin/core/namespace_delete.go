package core

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// namespaceVerbs are the methods of the resource that stay as they are: not
// Delete, which is special, and not DeleteCollection, which namespaces lack.
type namespaceVerbs interface {
	rest.StorageWithReadiness
	rest.Scoper
	rest.SingularNameProvider
	rest.ShortNamesProvider
	rest.StorageVersionProvider
	rest.ResetFieldsStrategy
	rest.Getter
	rest.Lister
	rest.Watcher
	rest.CreaterUpdater
}

// namespaceStorage serves namespaces.
type namespaceStorage struct {
	namespaceVerbs
	store *registry.Store
}

var _ rest.GracefulDeleter = namespaceStorage{}

// namespaceResource is the resource of namespaces, with a Delete of its own.
func namespaceResource() controlplane.Resource {
	r := namespaces().Resource(corev1.SchemeGroupVersion)
	r.Build = func(config controlplane.BuildConfig) (controlplane.ResourceStorage, error) {
		var store *registry.Store
		d := namespaces(apis.Store(func(s *registry.Store) { store = s }))
		versions, err := d.Resource(corev1.SchemeGroupVersion).Build(config)
		if err != nil {
			return nil, err
		}
		for version, paths := range versions {
			verbs, ok := paths[r.Name].(namespaceVerbs)
			if !ok {
				return nil, fmt.Errorf("%s/%s: %T does not support every verb of namespaces", version, r.Name, paths[r.Name])
			}
			paths[r.Name] = namespaceStorage{namespaceVerbs: verbs, store: store}
		}
		return versions, nil
	}
	return r
}

// Delete starts the termination of a namespace, and does no more until
// spec.finalizers is empty: a second delete answers with the namespace as it
// is. Emptying spec.finalizers by /finalize removes it without another delete.
func (s namespaceStorage) Delete(
	ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions,
) (runtime.Object, bool, error) {
	obj, err := s.store.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, false, err
	}
	ns, ok := obj.(*corev1.Namespace)
	if !ok {
		return nil, false, errNotNamespace(obj)
	}
	options, err = pin(options, ns)
	switch {
	case err != nil:
		return nil, false, err
	case ns.DeletionTimestamp.IsZero():
		out, err := s.terminate(ctx, name, validate, options)
		return out, false, err
	case len(ns.Spec.Finalizers) > 0:
		return ns, false, nil
	}
	return s.store.Delete(ctx, name, validate, options)
}

// terminate marks a namespace for deletion.
func (s namespaceStorage) terminate(
	ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions,
) (runtime.Object, error) {
	key, err := s.store.KeyFunc(ctx, name)
	if err != nil {
		return nil, err
	}
	mark := storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
		ns, ok := obj.(*corev1.Namespace)
		if !ok {
			return nil, errNotNamespace(obj)
		}
		if err := validate(ctx, ns); err != nil {
			return nil, err
		}
		if ns.DeletionTimestamp.IsZero() {
			now := metav1.Now()
			ns.DeletionTimestamp = &now
		}
		ns.Status.Phase = corev1.NamespaceTerminating
		if s.store.EnableGarbageCollection {
			ns.Finalizers = dependentsFinalizers(ns.Finalizers, options)
		}
		return ns, nil
	})
	out := s.store.New()
	preconditions := &storage.Preconditions{UID: options.Preconditions.UID, ResourceVersion: options.Preconditions.ResourceVersion}
	err = s.store.Storage.GuaranteedUpdate(ctx, key, out, false, preconditions, mark, dryrun.IsDryRun(options.DryRun), nil)
	if err != nil {
		return nil, statusError(err, name)
	}
	return out, nil
}

// pin checks the preconditions and adds the UID: a namespace of the same name
// that is created meanwhile must not be deleted instead.
func pin(options *metav1.DeleteOptions, ns *corev1.Namespace) (*metav1.DeleteOptions, error) {
	if options == nil {
		options = metav1.NewDeleteOptions(0)
	}
	options = options.DeepCopy()
	if options.Preconditions == nil {
		options.Preconditions = &metav1.Preconditions{}
	}
	pre := options.Preconditions
	if pre.UID == nil {
		uid := ns.UID
		pre.UID = &uid
	}
	if *pre.UID != ns.UID {
		return nil, preconditionFailed(ns.Name, "UID", string(*pre.UID), string(ns.UID))
	}
	if rv := pre.ResourceVersion; rv != nil && *rv != ns.ResourceVersion {
		return nil, preconditionFailed(ns.Name, "ResourceVersion", *rv, ns.ResourceVersion)
	}
	return options, nil
}

// preconditionFailed is the 409 that the storage would answer with.
func preconditionFailed(name, what, want, have string) error {
	//nolint:staticcheck // the text is Kubernetes' own
	err := fmt.Errorf("Precondition failed: %s in precondition: %s, %s in object meta: %s", what, want, what, have)
	return apierrors.NewConflict(corev1.Resource("namespaces"), name, err)
}

// dependentsFinalizers are the finalizers of an object that is deleted with the
// given options: those of the garbage collector come or go with the
// propagation policy, and without a policy all stay.
func dependentsFinalizers(have []string, options *metav1.DeleteOptions) []string {
	var orphan, foreground bool
	switch {
	case options.OrphanDependents != nil: //nolint:staticcheck // deprecated, but clients may still send it
		orphan = *options.OrphanDependents //nolint:staticcheck // as above
		foreground = !orphan
	case options.PropagationPolicy != nil:
		orphan = *options.PropagationPolicy == metav1.DeletePropagationOrphan
		foreground = *options.PropagationPolicy == metav1.DeletePropagationForeground
	default:
		return have
	}
	want := slices.DeleteFunc(slices.Clone(have), func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})
	if orphan {
		want = append(want, metav1.FinalizerOrphanDependents)
	}
	if foreground {
		want = append(want, metav1.FinalizerDeleteDependents)
	}
	return want
}

// statusError turns an error of the storage into one for the client.
func statusError(err error, name string) error {
	err = storeerr.InterpretGetError(err, corev1.Resource("namespaces"), name)
	err = storeerr.InterpretUpdateError(err, corev1.Resource("namespaces"), name)
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return err
	}
	return apierrors.NewInternalError(err)
}

func errNotNamespace(obj runtime.Object) error { return fmt.Errorf("%T is not a namespace", obj) }
