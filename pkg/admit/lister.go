package admit

import (
	"context"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// Lister gives an admission function the objects of a resource that the plane
// serves, whether built in, typed or custom. They are
// *unstructured.Unstructured, shared and not to be changed, and come from a cache
// that may be a moment behind: recent writes may be missing.
//
// The first call for a resource fills its cache and waits for it, as long as
// the context lasts and 10 s at most. It is an error when nobody serves the
// resource; where that may change, as for custom resources, ask again in the
// next request.
type Lister func(ctx context.Context, r schema.GroupVersionResource) (cache.GenericLister, error)

// ValidateWith is [Validate] for a function that looks at other objects. build is
// called once per plane.
func ValidateWith(name string, build func(Lister) Func) controlplane.Part {
	return listing{part: part{name: name}, build: build}
}

// MutateWith is [Mutate] for a function that looks at other objects. build is
// called once per plane.
func MutateWith(name string, build func(Lister) Func) controlplane.Part {
	return listing{part: part{name: name}, build: build, mutates: true}
}

type listing struct {
	part
	build   func(Lister) Func
	mutates bool
}

// Install declares the plugin, and the work that keeps its caches.
func (l listing) Install(p *controlplane.Plan) error {
	if l.build == nil {
		return errors.New("the admission function is nil")
	}
	kept := &resourceCaches{asked: make(chan question), over: make(chan struct{})}
	f := l.build(kept.lister)
	if l.mutates {
		l.mutate = f
	} else {
		l.validate = f
	}
	if err := l.part.Install(p); err != nil {
		return err
	}
	p.Work(controlplane.Work{Name: "caches of admission " + l.name, Run: kept.run})
	return nil
}

// resourceCaches are the caches of one function. Once asked for, a cache lives as long
// as the plane.
type resourceCaches struct {
	asked chan question
	over  chan struct{}
}

// question asks for the mirror of a resource. The channel answer is buffered.
type question struct {
	resource schema.GroupVersionResource
	answer   chan *mirror
}

// mirror is the cache of one resource.
type mirror struct {
	informers.GenericInformer
	ended chan struct{}
	// unserved tells, once the mirror ended, that nobody serves the resource.
	unserved bool
}

// run answers questions until the plane stops.
func (k *resourceCaches) run(ctx context.Context, p *controlplane.Plane) error {
	defer close(k.over)
	client, err := dynamic.NewForConfig(p.Config())
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	open := map[schema.GroupVersionResource]*mirror{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case q := <-k.asked:
			m := open[q.resource]
			if m == nil || m.isOver() {
				m = newMirror(client, q.resource)
				open[q.resource] = m
				running.Go(func() { m.run(ctx) })
			}
			q.answer <- m
		}
	}
}

func newMirror(client dynamic.Interface, r schema.GroupVersionResource) *mirror {
	byNamespace := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	return &mirror{
		GenericInformer: dynamicinformer.NewFilteredDynamicInformer(client, r, "", 0, byNamespace, nil),
		ended:           make(chan struct{}),
	}
}

// run follows the resource until the context ends or nobody serves it.
func (m *mirror) run(ctx context.Context) {
	defer close(m.ended)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err := m.Informer().SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
			m.unserved = true
			cancel()
			return
		}
		cache.DefaultWatchErrorHandler(ctx, r, err)
	})
	if err == nil { // always: it has not started
		m.Informer().RunWithContext(ctx)
	}
}

func (m *mirror) isOver() bool {
	select {
	case <-m.ended:
		return true
	default:
		return false
	}
}

// lister is the Lister of the function.
func (k *resourceCaches) lister(ctx context.Context, r schema.GroupVersionResource) (cache.GenericLister, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	q := question{resource: r, answer: make(chan *mirror, 1)}
	select {
	case k.asked <- q:
	case <-k.over:
		return nil, fmt.Errorf("list %s: the server is stopping", r)
	case <-ctx.Done():
		return nil, fmt.Errorf("list %s: the server has not started: %w", r, ctx.Err())
	}
	m := <-q.answer
	select {
	case <-m.Informer().HasSyncedChecker().Done():
		return m.Lister(), nil
	case <-m.ended:
		if !m.unserved {
			return nil, fmt.Errorf("list %s: the server is stopping", r)
		}
		return nil, fmt.Errorf("list %s: the resource is not served", r)
	case <-ctx.Done():
		return nil, fmt.Errorf("list %s: the cache is not filled yet: %w", r, ctx.Err())
	}
}
