package planetest

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// Informer has a cache: a SharedIndexInformer of client-go, or what GetInformer
// of controller-runtime's cache returns.
type Informer interface {
	AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error)
	RemoveEventHandler(handle cache.ResourceEventHandlerRegistration) error
}

// Seen waits until the cache of an informer has every given object in the state
// in which it was written or read, or in a later one: its resource version says
// which. The informer must run. See also [Plane.SeenBy].
func (p *Plane) Seen(t TB, informer Informer, objects ...metav1.Object) {
	t.Helper()
	for _, o := range objects {
		p.cached(t, informer, o, func(cached metav1.Object) error { return atLeast(cached, o) })
	}
}

// Forgotten waits until the cache of an informer has none of the given objects.
func (p *Plane) Forgotten(t TB, informer Informer, objects ...metav1.Object) {
	t.Helper()
	for _, o := range objects {
		p.cached(t, informer, o, func(cached metav1.Object) error {
			if cached != nil {
				return errors.New("it still has the object")
			}
			return nil
		})
	}
}

// SeenBy waits until get returns the object in the state in which it was written
// or read, or in a later one. It is for caches that have no informer, or hide it:
//
//	plane.SeenBy(t, written, func() (metav1.Object, error) {
//		got := &v1.Widget{}
//		return got, manager.GetClient().Get(ctx, client.ObjectKeyFromObject(written), got)
//	})
func (p *Plane) SeenBy(t TB, object metav1.Object, get func() (metav1.Object, error)) {
	t.Helper()
	ctx, cancel := p.within(contextOf(t))
	defer cancel()
	err := p.eventually(ctx, func(context.Context) error {
		got, err := get()
		if err != nil {
			return err
		}
		return atLeast(got, object)
	})
	if err != nil {
		t.Fatalf("wait until %s/%s is seen: %v: %v", object.GetNamespace(), object.GetName(), context.Cause(ctx), err)
	}
}

// atLeast returns an error if the cached object is older than the wanted one.
func atLeast(cached, wanted metav1.Object) error {
	if cached == nil {
		return absent()
	}
	order, err := resourceversion.CompareResourceVersion(cached.GetResourceVersion(), wanted.GetResourceVersion())
	if err != nil {
		return fmt.Errorf("compare resource versions %q and %q: %w", cached.GetResourceVersion(), wanted.GetResourceVersion(), err)
	}
	if order < 0 {
		return fmt.Errorf("it has resource version %s, want %s", cached.GetResourceVersion(), wanted.GetResourceVersion())
	}
	return nil
}

// cached waits until check holds for an object as the informer's cache has it,
// nil if it has none. An informer tells a new handler of everything it has, and
// then of changes, each when its cache has it.
func (p *Plane) cached(t TB, informer Informer, o metav1.Object, check func(metav1.Object) error) {
	t.Helper()
	ctx, cancel := p.within(contextOf(t))
	defer cancel()
	states := make(chan metav1.Object)
	tell := func(obj any, gone bool) {
		if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = unknown.Obj
		}
		now, err := meta.Accessor(obj)
		if err != nil || now.GetName() != o.GetName() || now.GetNamespace() != o.GetNamespace() {
			return
		}
		if gone {
			now = nil
		}
		select {
		case states <- now:
		case <-ctx.Done():
		}
	}
	handle, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { tell(obj, false) },
		UpdateFunc: func(_, obj any) { tell(obj, false) },
		DeleteFunc: func(obj any) { tell(obj, true) },
	})
	if err != nil {
		t.Fatalf("wait for a cache: %v", err)
	}
	defer func() { _ = informer.RemoveEventHandler(handle) }() // the only error is of a handle of another informer
	defer cancel()
	// Until the handler has synced, the content of the cache is not known.
	lacks := errors.New("the informer has not synced: does it run?")
	synced := handle.HasSyncedChecker().Done()
	var now metav1.Object
	for {
		select {
		case now = <-states:
			lacks = check(now)
		case <-synced:
			synced = nil
			lacks = check(now)
		case <-ctx.Done():
			t.Fatalf("wait until the cache has %s/%s: %v: %v", o.GetNamespace(), o.GetName(), context.Cause(ctx), lacks)
		}
		if lacks == nil && (now != nil || synced == nil) {
			return
		}
	}
}
