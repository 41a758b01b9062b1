package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/google/uuid"
	"go.etcd.io/etcd/client/v3/kubernetes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/internal/bodies"
	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
)

// unreadableError says that a stored value is no object: some of its bytes are
// wrong. Values that cannot be converted or decrypted now are not unreadable: they
// may be later.
type unreadableError struct{ cause error }

func (e *unreadableError) Error() string { return e.cause.Error() }
func (e *unreadableError) Unwrap() error { return e.cause }

// leftOut marks the substitute for an unreadable object until its list is complete.
const leftOut = "sailplane.dev/left-out"

// decoder finds values that are no objects, and goes on after one in a list.
type decoder struct {
	etcd3.Decoder
	mark   string // of this process, which no client can know
	bodies *bodies.Checker
}

func newDecoder(d etcd3.Decoder, b *bodies.Checker) *decoder {
	return &decoder{Decoder: d, mark: uuid.NewString(), bodies: b}
}

// damageOf tells what is wrong with a value before it is decoded. One that nests
// without end would end the process.
func (d *decoder) damageOf(value []byte) error {
	if err := revision.DamageOf(value); err != nil || d.bodies == nil {
		return err
	}
	return d.bodies.Stored(value)
}

// Decode implements etcd3.Decoder.
func (d *decoder) Decode(value []byte, into runtime.Object, rev int64) error {
	if err := d.damageOf(value); err != nil {
		return &unreadableError{err}
	}
	err := d.Decoder.Decode(value, into, rev)
	if err != nil && !isObject(value) {
		return &unreadableError{err}
	}
	return err
}

// DecodeListItem implements etcd3.Decoder.
func (d *decoder) DecodeListItem(
	ctx context.Context, data []byte, rev uint64, newItem func() runtime.Object,
) (runtime.Object, error) {
	err := d.damageOf(data)
	if err == nil {
		var object runtime.Object
		if object, err = d.Decoder.DecodeListItem(ctx, data, rev, newItem); err == nil || isObject(data) {
			return object, err
		}
	}
	object := newItem()
	accessor, wrong := meta.Accessor(object)
	if wrong != nil {
		return nil, err
	}
	accessor.SetAnnotations(map[string]string{leftOut: d.mark, "cause": err.Error()})
	return object, nil
}

// isObject tells whether a value has the form of an object: then its bytes are
// those that were written, whatever else is wrong.
func isObject(value []byte) bool {
	if rest, found := bytes.CutPrefix(value, []byte{'k', '8', 's', 0}); found {
		return (&runtime.Unknown{}).Unmarshal(rest) == nil
	}
	return json.Valid(value)
}

// readable is a store in which an unreadable object harms only itself: lists leave
// it out and say so, reads say what is wrong with it, and it can be deleted.
type readable struct {
	storage.Interface
	resource schema.GroupResource
	prefix   string // of keys as the API knows them
	root     string // before it, in the storage
	mark     string
	client   *kubernetes.Client

	said sync.Map // resource versions and causes that were logged
}

// count is how many objects are stored. Stats would ask the watch cache above the
// store.
func (r *readable) count(ctx context.Context) (int64, error) {
	return r.client.Kubernetes.Count(ctx, r.root+strings.Trim(r.prefix, "/")+"/", kubernetes.CountOptions{})
}

// Get implements storage.Interface. A delete of an unreadable object gets an object
// with only a name.
func (r *readable) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	err := r.Interface.Get(ctx, key, opts, out)
	var unreadable *unreadableError
	if !errors.As(err, &unreadable) {
		return err
	}
	if info, ok := request.RequestInfoFrom(ctx); ok && info.Verb == "delete" {
		return r.name(key, out)
	}
	return r.explain(key, err)
}

func (r *readable) explain(key string, err error) error {
	return apierrors.NewInternalError(fmt.Errorf(
		"the stored value of %s %s is damaged: %w; restore the object from a copy of the storage, or delete it",
		r.resource, strings.TrimPrefix(key, r.prefix+"/"), err))
}

// name gives an object the name in its key.
func (r *readable) name(key string, out runtime.Object) error {
	if err := runtime.SetZeroValue(out); err != nil {
		return err
	}
	accessor, err := meta.Accessor(out)
	if err != nil {
		return err
	}
	place := strings.TrimPrefix(strings.TrimPrefix(key, "/"), strings.Trim(r.prefix, "/"))
	namespace, name, found := strings.Cut(strings.Trim(place, "/"), "/")
	if !found {
		namespace, name = "", namespace
	}
	accessor.SetNamespace(namespace)
	accessor.SetName(name)
	return nil
}

// GetList implements storage.Interface.
func (r *readable) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	if err := r.Interface.GetList(ctx, key, opts, list); err != nil {
		var unreadable *unreadableError
		if errors.As(err, &unreadable) {
			return r.explain(key, err)
		}
		return err
	}
	causeOf := func(object runtime.Object) (cause string, isLeftOut bool) {
		accessor, err := meta.Accessor(object)
		if err != nil || accessor.GetAnnotations()[leftOut] != r.mark {
			return "", false
		}
		return accessor.GetAnnotations()["cause"], true
	}
	var causes []string
	err := meta.EachListItem(list, func(object runtime.Object) error {
		if cause, isLeftOut := causeOf(object); isLeftOut {
			causes = append(causes, cause)
		}
		return nil
	})
	if err != nil || len(causes) == 0 {
		return err
	}
	var kept []runtime.Object
	err = meta.EachListItem(list, func(object runtime.Object) error {
		if _, isLeftOut := causeOf(object); !isLeftOut {
			kept = append(kept, object)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, cause := range causes {
		if _, known := r.said.LoadOrStore(cause, true); !known {
			klog.FromContext(ctx).Error(errors.New(cause), "An object is missing from lists because its stored value is damaged: "+
				"restore it from a copy of the storage, or delete it", "resource", r.resource)
		}
	}
	warning.AddWarning(ctx, "", fmt.Sprintf("%d of %s are left out: their stored values are damaged", len(causes), r.resource))
	return meta.SetList(list, kept)
}

// Delete implements storage.Interface.
//
//nolint:revive // the parameters are storage.Interface's
func (r *readable) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	err := r.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts)
	var unreadable *unreadableError
	if !errors.As(err, &unreadable) {
		return err
	}
	if preconditions != nil && (preconditions.UID != nil || preconditions.ResourceVersion != nil) {
		return r.explain(key, fmt.Errorf("%w (its UID and resource version are unknown: delete it without preconditions)", err))
	}
	if err := r.name(key, out); err != nil {
		return err
	}
	if err := validate(ctx, out); err != nil {
		return err
	}
	stored := r.root + strings.TrimPrefix(key, "/")
	for {
		found, err := r.client.Kubernetes.Get(ctx, stored, kubernetes.GetOptions{})
		switch {
		case err != nil:
			return err
		case found.KV == nil:
			return storage.NewKeyNotFoundError(key, 0)
		}
		deleted, err := r.client.OptimisticDelete(ctx, stored, found.KV.ModRevision, kubernetes.DeleteOptions{})
		if err != nil || deleted.Succeeded {
			return err
		}
	}
}
