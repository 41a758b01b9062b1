package terminator

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/workqueue"

	"github.com/sailplane-dev/sailplane/pkg/internal/catalog"
	"github.com/sailplane-dev/sailplane/pkg/internal/retry"
)

// outsideTimeout bounds how long a resource outside this plane's storage may take to delete
// and list its objects.
const outsideTimeout = 30 * time.Second

// empty deletes what a namespace holds and returns what is left. Stored objects go
// first: the feed knows which resources have any. It asks all resources outside the
// storage, those of other servers or of a storage of their own.
func (t *terminator) empty(ctx context.Context, s *catalog.Served, w *waits, namespace string) *remains {
	r := &remains{undiscovered: map[schema.GroupVersion]error{}, objects: map[string]int{}, finalizers: map[string]int{}}
	for gv, err := range s.Failed {
		if _, remote := s.Remote[gv]; !remote {
			r.undiscovered[gv] = err
		}
	}
	err := t.emptyStored(ctx, s, namespace, r)
	r.asked = time.Now() // not before: this namespace may have waited for others
	if err != nil {
		r.failed = append(r.failed, failure{err: err})
		return r
	}
	others := map[schema.GroupVersion][]catalog.Target{} // by other server; the zero key: those with a storage of their own
	for gr, res := range s.Resources {
		if !res.Emptied() || t.stored(gr) {
			continue
		}
		var at schema.GroupVersion
		if _, remote := s.Remote[res.GroupVersion()]; remote {
			at = res.GroupVersion()
		}
		others[at] = append(others[at], res)
	}
	var all sync.WaitGroup
	all.Go(func() { t.emptyOthers(ctx, schema.GroupVersion{}, others[schema.GroupVersion{}], namespace, r) })
	for gv, wasAvailable := range s.Remote {
		if !wasAvailable {
			continue
		}
		// Each has its own time and requests: one that hangs delays no other.
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, w.budget(gv))
			defer cancel()
			held := others[gv]
			if _, failed := s.Failed[gv]; failed {
				var err error
				if held, err = t.ask(ctx, gv); err != nil {
					r.undiscover(gv, err)
					return
				}
			}
			t.emptyOthers(ctx, gv, held, namespace, r)
		})
	}
	all.Wait()
	for gv := range s.Remote {
		if t.elsewhere.empty(namespace, gv) {
			r.forgive(gv)
		}
	}
	return r
}

// emptyOthers deletes the namespace's objects of resources outside the plane's
// storage: those of a group version of another server, or of none.
func (t *terminator) emptyOthers(ctx context.Context, at schema.GroupVersion, others []catalog.Target, namespace string, r *remains) {
	each(others, func(res catalog.Target) {
		ctx, cancel := context.WithTimeout(ctx, outsideTimeout)
		defer cancel()
		err := t.deleteAll(ctx, res, namespace)
		if err == nil {
			err = t.look(ctx, res, namespace, r)
		}
		r.fail(at, res, err)
	})
}

// emptyStored deletes the namespace's objects in the plane's storage.
func (t *terminator) emptyStored(ctx context.Context, s *catalog.Served, namespace string, r *remains) error {
	select {
	case t.slots <- struct{}{}:
		defer func() { <-t.slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := t.feed.CatchUp(ctx); err != nil {
		return err
	}
	here := schema.GroupVersion{}
	each(t.held(s, namespace), func(res catalog.Target) { r.fail(here, res, t.deleteAll(ctx, res, namespace)) })
	if err := t.feed.CatchUp(ctx); err != nil {
		return err
	}
	each(t.held(s, namespace), func(res catalog.Target) { r.fail(here, res, t.look(ctx, res, namespace, r)) })
	return nil
}

// held returns the resources with stored objects in the namespace.
func (t *terminator) held(s *catalog.Served, namespace string) []catalog.Target {
	var all []catalog.Target
	unlisted := map[schema.GroupResource]bool{}
	for gr := range t.feed.Counts(namespace) {
		res, ok := s.Resources[gr]
		switch {
		case !ok:
			unlisted[gr] = true
		case res.Namespaced && (res.Can("deletecollection") || res.Can("delete")):
			all = append(all, res)
		}
	}
	if len(unlisted) == 0 {
		return all
	}
	return append(all, t.unlisted(unlisted, namespace)...)
}

// unlisted returns resources that discovery does not list, in the versions that
// their objects are stored in. Those of a new CRD are served before discovery lists
// them, and would outlive the namespace. A type that is no longer served answers
// NotFound and holds up nothing: nobody can reach it.
func (t *terminator) unlisted(resources map[schema.GroupResource]bool, namespace string) []catalog.Target {
	seen := map[schema.GroupVersionResource]catalog.Target{}
	for o := range t.feed.All() {
		kind := o.Type.Kind
		if o.Namespace != namespace || !resources[o.Type.Resource] || kind.Version == "" || kind.Group != o.Type.Resource.Group {
			continue
		}
		gvr := o.Type.Resource.WithVersion(kind.Version)
		verbs := []string{"list", "delete", "deletecollection"}
		seen[gvr] = catalog.Target{GroupVersionResource: gvr, Kind: kind.Kind, Namespaced: true, Verbs: verbs}
	}
	return slices.Collect(maps.Values(seen))
}

// each calls f for every target, a few at a time. It skips none when time is over: a
// target that was not asked would pass for an empty one.
func each(targets []catalog.Target, f func(catalog.Target)) {
	workqueue.ParallelizeUntil(context.Background(), atOnce, len(targets), func(i int) { f(targets[i]) })
}

// deleteAll deletes a resource's objects in the namespace, with their dependents.
func (t *terminator) deleteAll(ctx context.Context, res catalog.Target, namespace string) error {
	background := metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{PropagationPolicy: &background}
	objects := t.objects.Resource(res.GroupVersionResource).Namespace(namespace)
	if res.Can("deletecollection") {
		err := objects.DeleteCollection(ctx, options, metav1.ListOptions{})
		if err == nil || apierrors.IsNotFound(err) {
			return nil
		}
		if !apierrors.IsMethodNotSupported(err) {
			return err
		}
	}
	return pages(ctx, objects, func(o *metav1.PartialObjectMetadata) error {
		return retry.UnlessGone(objects.Delete(ctx, o.Name, options))
	})
}

// look notes the objects of a resource that are left in the namespace, and their
// finalizers.
func (t *terminator) look(ctx context.Context, res catalog.Target, namespace string, r *remains) error {
	n, finalizers := 0, map[string]int{}
	err := pages(ctx, t.objects.Resource(res.GroupVersionResource).Namespace(namespace), func(o *metav1.PartialObjectMetadata) error {
		n++
		for _, f := range o.Finalizers {
			finalizers[f]++
		}
		return nil
	})
	if err == nil && n > 0 {
		r.left(res, n, finalizers)
	}
	return err
}

// pages calls f for every object, a page at a time. A resource that is gone has none.
func pages(ctx context.Context, objects metadata.ResourceInterface, f func(*metav1.PartialObjectMetadata) error) error {
	p := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return objects.List(ctx, options)
	})
	p.FullListIfExpired = false // the next try begins anew, page by page
	return retry.UnlessGone(p.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		return f(o.(*metav1.PartialObjectMetadata))
	}))
}
