package crd

import (
	"context"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/internal/turns"
)

const (
	// usablePatience bounds how long the answer to a write of a CRD waits.
	usablePatience = 10 * time.Second
	// schemasAtOnce is how many schemas, in all, CRDs may have that become usable at the
	// same time: controllers, watch caches and informers compute for them beside each
	// other, for a quarter of a millisecond each.
	schemasAtOnce = 1_000
)

// usable delays the answer to who creates or changes a CRD until what it serves can be
// used, in the version just written. Upstream answers before, and programs that do not
// wait for the condition fail now and then. It also keeps who creates many CRDs from
// running ahead of the server, so that each is established soon.
type usable struct {
	storage.Interface
	groups *groups
}

// definitions is the storage of CRDs.
type definitions struct {
	storage.Interface
	key func(runtime.Object) (string, error)
}

// wrapping are options whose storage is wrapped.
type wrapping struct {
	generic.RESTOptionsGetter
	wrap func(made) made
}

// made is the storage of a resource.
type made struct {
	storage.Interface
	resource schema.GroupResource
	key      func(runtime.Object) (string, error)
	destroy  factory.DestroyFunc
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (w wrapping) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := w.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err != nil {
		return options, err
	}
	decorate := options.Decorator
	options.Decorator = func(
		config *storagebackend.ConfigForResource, prefix string, key func(runtime.Object) (string, error),
		object, list func() runtime.Object, attributes storage.AttrFunc, trigger storage.IndexerFuncs, indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		s, destroy, err := decorate(config, prefix, key, object, list, attributes, trigger, indexers)
		if err != nil {
			return s, destroy, err
		}
		m := w.wrap(made{s, resource, key, destroy})
		return m.Interface, m.destroy, nil
	}
	return options, nil
}

// keep has the storage of CRDs delay what is written.
func (g *groups) keep(m made) made {
	g.stored = definitions{m.Interface, m.key}
	m.Interface = usable{m.Interface, g}
	return m
}

// Create implements storage.Interface.
func (u usable) Create(ctx context.Context, key string, object, out runtime.Object, ttl uint64) error {
	crd, ok := object.(*apiextensions.CustomResourceDefinition)
	if !ok {
		return u.Interface.Create(ctx, key, object, out, ttl)
	}
	b := &becoming{groups: u.groups}
	defer b.end()
	if err := b.begin(ctx, crd); err != nil {
		return err
	}
	if err := b.takeNames(ctx, crd); err != nil {
		return err
	}
	u.groups.accept(crd)
	if err := u.Interface.Create(ctx, key, object, out, ttl); err != nil {
		return err
	}
	b.await(ctx, out)
	return nil
}

// GuaranteedUpdate implements storage.Interface.
//
//nolint:revive // the parameters are those of storage.Interface
func (u usable) GuaranteedUpdate(
	ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object,
) error {
	info, ok := request.RequestInfoFrom(ctx)
	if !ok || info.Subresource != "" || info.Verb != "update" && info.Verb != "patch" {
		return u.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, update, cached)
	}
	b := &becoming{groups: u.groups}
	defer b.end()
	err := u.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions,
		func(input runtime.Object, meta storage.ResponseMeta) (runtime.Object, *uint64, error) {
			object, ttl, err := update(input, meta)
			crd, ok := object.(*apiextensions.CustomResourceDefinition)
			if err != nil || !ok {
				return object, ttl, err
			}
			if err = b.begin(ctx, crd); err == nil {
				before, ok := input.(*apiextensions.CustomResourceDefinition)
				if !ok || !equality.Semantic.DeepEqual(before.Spec.Names, crd.Spec.Names) {
					err = b.takeNames(ctx, crd)
				}
			}
			return object, ttl, err
		}, cached)
	if err != nil {
		return err
	}
	b.await(ctx, out)
	return nil
}

// becoming is a write of a CRD, until what it serves can be used.
type becoming struct {
	groups  *groups
	schemas int64  // of those that may become usable at once; 0 until it has begun
	unlock  func() // ends that it takes names; nil if it does not
}

// begin waits until few enough CRDs become usable that this one may, too. It may be
// called again, after a conflict.
func (b *becoming) begin(ctx context.Context, crd *apiextensions.CustomResourceDefinition) error {
	if b.schemas > 0 || crd.DeletionTimestamp != nil {
		return nil
	}
	resume := turns.From(ctx).Await()
	defer resume(ctx)
	n := min(int64(sizeOf(crd).schemas), schemasAtOnce)
	if err := b.groups.becoming.Acquire(ctx, n); err != nil {
		return errBusy()
	}
	b.schemas = n
	return nil
}

// takeNames waits until no other takes names in the group of the CRD. It may be called
// again, as begin.
func (b *becoming) takeNames(ctx context.Context, crd *apiextensions.CustomResourceDefinition) (err error) {
	if b.unlock != nil {
		return nil
	}
	resume := turns.From(ctx).Await()
	defer resume(ctx)
	if b.unlock, err = b.groups.naming.lock(ctx, crd.Spec.Group); err != nil {
		return errBusy()
	}
	return nil
}

func errBusy() error {
	return apierrors.NewTimeoutError("other CRDs become usable, one after another: try again", 1)
}

// end lets others begin.
func (b *becoming) end() {
	if b.unlock != nil {
		b.unlock()
	}
	b.groups.becoming.Release(b.schemas)
}

// await returns when the CRD that was written can be used, will not be, or is waited for
// in vain. What is answered stays as it was written: a client may watch from its version
// on until the CRD is established.
func (b *becoming) await(ctx context.Context, out runtime.Object) {
	written, ok := out.(*apiextensions.CustomResourceDefinition)
	if !ok || written.DeletionTimestamp != nil {
		return
	}
	resume := turns.From(ctx).Yield()
	defer resume(ctx)
	if b.unlock != nil { // who takes names next has to see these, even if this caller has gone
		patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), usablePatience)
		_ = b.groups.changed.Await(patient, func() bool { return b.groups.hasSeen(written) })
		cancel()
		b.unlock()
	}
	ctx, cancel := context.WithTimeout(ctx, usablePatience)
	defer cancel()
	crd, err := b.groups.await(ctx, written.Name, written.Generation, 0)
	if err == nil && crd != nil {
		if err = b.groups.plane.AwaitDiscovery(ctx, served(crd)); err == nil {
			err = b.groups.serving.await(ctx, crd)
		}
	}
	if err != nil || crd == nil {
		klog.FromContext(ctx).V(1).Info("Answered the write of a CRD that cannot be used yet", "name", written.Name, "reason", err)
	}
}
