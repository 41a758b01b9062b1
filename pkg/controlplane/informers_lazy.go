package controlplane

import (
	"context"
	"errors"
	"strconv"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/admissionregistration"
	"k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/informers/rbac"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
)

// lazyInformers are informers that watch a resource from its first object on.
// Admission plugins and RBAC watch a dozen resources of which most planes never
// have an object; each watch needs routes, a watch cache and thirty goroutines.
type lazyInformers struct {
	informers.SharedInformerFactory
	plane *Plane
}

// newInformers makes the informers of a plane. Their objects have no managed
// fields, which no watcher reads and which take a third of an object's memory.
func newInformers(p *Plane, client kubernetes.Interface) informers.SharedInformerFactory {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(func(o any) (any, error) {
		if m, err := meta.Accessor(o); err == nil {
			m.SetManagedFields(nil)
		}
		return o, nil
	}))
	return lazyInformers{factory, p}
}

// InformerFor below makes the informers of these groups. A plane that starts writes
// the watched objects of other groups.
func (d lazyInformers) Core() core.Interface { return core.New(d, metav1.NamespaceAll, nil) }

func (d lazyInformers) Admissionregistration() admissionregistration.Interface {
	return admissionregistration.New(d, metav1.NamespaceAll, nil)
}

func (d lazyInformers) Rbac() rbac.Interface { return rbac.New(d, metav1.NamespaceAll, nil) }

// InformerFor implements informers.SharedInformerFactory.
func (d lazyInformers) InformerFor(obj runtime.Object, stock internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	return d.SharedInformerFactory.InformerFor(obj, func(c kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		kinds, _, err := scheme.Scheme.ObjectKinds(obj)
		if err != nil {
			return stock(c, resync)
		}
		var client cache.Getter
		switch kinds[0].GroupVersion() {
		case corev1.SchemeGroupVersion:
			client = c.CoreV1().RESTClient()
		case admissionv1.SchemeGroupVersion:
			client = c.AdmissionregistrationV1().RESTClient()
		case rbacv1.SchemeGroupVersion:
			client = c.RbacV1().RESTClient()
		default:
			return stock(c, resync)
		}
		resource := d.plane.plan.storedAs(kinds[0])
		if resource == "" {
			return stock(c, resync)
		}
		all := cache.NewListWatchFromClient(client, resource, metav1.NamespaceAll, fields.Everything())
		stored := schema.GroupResource{Group: kinds[0].Group, Resource: resource}
		watcher := &lazyWatch{all: all, example: obj, first: func(ctx context.Context) (<-chan struct{}, int64, error) {
			return d.plane.stores.FirstWrite(ctx, stored)
		}}
		lazy := &cache.ListWatch{ListWithContextFunc: all.ListWithContext, WatchFuncWithContext: watcher.watch}
		return cache.NewSharedIndexInformerWithOptions(lazy, obj, cache.SharedIndexInformerOptions{
			ResyncPeriod: resync, Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		})
	})
}

// storedAs returns the name of the resource that stores objects of a kind in the plane's
// storage, empty if there is none.
func (p *Plan) storedAs(kind gvk) string {
	r, _ := p.find(kind.Group, func(r Resource) bool { return r.Kind == kind.Kind && !r.View && !r.Elsewhere })
	return r.Name
}

// lazyWatch watches a resource that may never have objects in the plane's life.
type lazyWatch struct {
	all     *cache.ListWatch
	example runtime.Object
	// first is [store.Stores.FirstWrite] of the resource.
	first func(context.Context) (written <-chan struct{}, revision int64, err error)
}

// watch tells a reflector that asks for all objects and their changes that there
// are none, and begins to watch when the resource is first written.
func (l *lazyWatch) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if opts.SendInitialEvents == nil || !*opts.SendInitialEvents {
		return l.all.WatchWithContext(ctx, opts)
	}
	written, revision, err := l.first(ctx)
	if err != nil {
		return nil, err
	}
	if written == nil {
		return l.all.WatchWithContext(ctx, opts)
	}
	none := l.example.DeepCopyObject()
	m, err := meta.Accessor(none)
	if err != nil {
		return nil, err
	}
	m.SetResourceVersion(strconv.FormatInt(revision, 10))
	m.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	ctx, cancel := context.WithCancel(ctx)
	r := &relay{events: make(chan watch.Event), end: cancel}
	go func() {
		defer close(r.events)
		if !r.send(ctx, watch.Event{Type: watch.Bookmark, Object: none}) {
			return
		}
		select {
		case <-written:
		case <-ctx.Done():
			return
		}
		w, err := l.all.WatchWithContext(ctx, opts)
		if err != nil {
			r.send(ctx, again(err))
			return
		}
		defer w.Stop()
		begun := false                  // the present objects are there
		for e := range w.ResultChan() { // which ends with the context, or when the server ends it
			begun = begun || isBegun(e)
			if e.Type == watch.Error && !begun {
				e = again(apierrors.FromObject(e.Object))
			}
			if !r.send(ctx, e) {
				return
			}
		}
		if !begun {
			r.send(ctx, again(errors.New("the watch ended")))
		}
	}()
	return r, nil
}

// isBegun tells whether an event is the last of the present objects.
func isBegun(e watch.Event) bool {
	m, err := meta.Accessor(e.Object)
	return err == nil && e.Type == watch.Bookmark && m.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}

// again has the reflector begin with all objects again. It believes that it has them
// since the relay said so, and would go on from the resource version of the last one that
// it was sent: but they come by name, and those that did not come may be older.
func again(cause error) watch.Event {
	err := apierrors.NewResourceExpired("the watch ended before the present objects were sent: " + cause.Error())
	return watch.Event{Type: watch.Error, Object: &err.ErrStatus}
}

// relay is a watch that passes on the events of another one.
type relay struct {
	events chan watch.Event
	end    context.CancelFunc
}

// ResultChan implements watch.Interface.
func (r *relay) ResultChan() <-chan watch.Event { return r.events }

// Stop implements watch.Interface.
func (r *relay) Stop() { r.end() }

func (r *relay) send(ctx context.Context, e watch.Event) bool {
	select {
	case r.events <- e:
		return true
	case <-ctx.Done():
		return false
	}
}
