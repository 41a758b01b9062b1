package terminator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/sailplane-dev/sailplane/pkg/internal/catalog"
)

// abroad bounds how long a server that is not this plane may take to delete and
// list what it holds.
const abroad = 30 * time.Second

// remains is what a namespace still holds after a try to empty it.
type remains struct {
	undiscovered map[schema.GroupVersion]error
	mu           sync.Mutex
	failed       []error
	objects      map[string]int // by resource, "configmaps."
	finalizers   map[string]int
}

func (r *remains) blocks() bool { return len(r.undiscovered)+len(r.failed)+len(r.objects) > 0 }

// err is what keeps the namespace beyond waiting.
func (r *remains) err() error {
	errs := slices.Clone(r.failed)
	for gv, err := range r.undiscovered {
		errs = append(errs, fmt.Errorf("discovery of %s: %w", gv, err))
	}
	return errors.Join(errs...)
}

func (r *remains) fail(t catalog.Target, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = append(r.failed, fmt.Errorf("%s: %w", t, err))
}

// left notes objects that are still there.
func (r *remains) left(t catalog.Target, n int, finalizers map[string]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.objects[t.String()] += n
	for f, n := range finalizers {
		r.finalizers[f] += n
	}
}

// empty deletes what a namespace holds and returns what is left. What the plane
// stores goes first: the feed knows where there is anything. Resources that it
// does not store, of other servers or of a storage of their own, are all asked.
func (t *terminator) empty(ctx context.Context, s *catalog.Served, namespace string) *remains {
	r := &remains{undiscovered: s.Failed, objects: map[string]int{}, finalizers: map[string]int{}}
	if err := t.emptyStored(ctx, s, namespace, r); err != nil {
		r.failed = append(r.failed, err)
		return r
	}
	var others []catalog.Target
	for gr, res := range s.Resources {
		if res.Namespaced && res.Can("list") && (res.Can("deletecollection") || res.Can("delete")) && !t.plane.Stored(gr) {
			others = append(others, res)
		}
	}
	each(others, func(res catalog.Target) {
		ctx, cancel := context.WithTimeout(ctx, abroad)
		defer cancel()
		if err := t.deleteAll(ctx, res, namespace); err != nil {
			r.fail(res, err)
			return
		}
		t.look(ctx, res, namespace, r)
	})
	return r
}

// emptyStored deletes what the plane's storage has of the namespace.
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
	each(t.held(s, namespace), func(res catalog.Target) {
		if err := t.deleteAll(ctx, res, namespace); err != nil {
			r.fail(res, err)
		}
	})
	if err := t.feed.CatchUp(ctx); err != nil {
		return err
	}
	each(t.held(s, namespace), func(res catalog.Target) { t.look(ctx, res, namespace, r) })
	return nil
}

// held are the resources of which the storage has objects in the namespace.
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

// unlisted are resources in the versions that their objects are stored in, where
// discovery does not list them. Those of a new CRD are served before it does, and
// would outlive the namespace. A type that is not served any more answers that it
// is not found, and holds up nothing: nobody can reach it.
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

// each calls f for every target, a few at a time.
func each(targets []catalog.Target, f func(catalog.Target)) {
	var all sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, res := range targets {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			f(res)
		})
	}
	all.Wait()
}

// deleteAll deletes a resource's objects in the namespace, with whatever they own.
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
		if err := objects.Delete(ctx, o.Name, options); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
}

// look notes what is left of a resource in the namespace, and its finalizers.
func (t *terminator) look(ctx context.Context, res catalog.Target, namespace string, r *remains) {
	n, finalizers := 0, map[string]int{}
	err := pages(ctx, t.objects.Resource(res.GroupVersionResource).Namespace(namespace), func(o *metav1.PartialObjectMetadata) error {
		n++
		for _, f := range o.Finalizers {
			finalizers[f]++
		}
		return nil
	})
	switch {
	case err != nil:
		r.fail(res, err)
	case n > 0:
		r.left(res, n, finalizers)
	}
}

// pages calls f for every object, a page at a time.
func pages(ctx context.Context, objects metadata.ResourceInterface, f func(*metav1.PartialObjectMetadata) error) error {
	options := metav1.ListOptions{Limit: 500}
	for {
		list, err := objects.List(ctx, options)
		if apierrors.IsNotFound(err) {
			return nil // the resource itself is gone
		}
		if err != nil {
			return err
		}
		for i := range list.Items {
			if err := f(&list.Items[i]); err != nil {
				return err
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return nil
		}
	}
}

// counted is "A in 2 resource instances, B in 1 resource instances", in order.
func counted(m map[string]int, format string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		all = append(all, fmt.Sprintf(format, name, m[name]))
	}
	return strings.Join(all, ", ")
}
