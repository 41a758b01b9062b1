package fairness

import (
	"context"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/sailplane-dev/sailplane/pkg/feed"
)

// number admits ObjectsPerResource.
type number struct {
	now   current
	judge *judge
	feed  atomic.Pointer[feed.Feed] // nil until it is complete
	since atomic.Int64              // objects admitted since it was asked to catch up
}

// near is how many objects below the limit, and after how many creates, the feed
// is asked to catch up: otherwise the few milliseconds that it is behind do not matter.
const near = 100

// Handles implements admission.Interface.
func (*number) Handles(o admission.Operation) bool { return o == admission.Create }

// Validate implements admission.ValidationInterface.
func (n *number) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	l, c := n.now(ctx), callerOf(ctx)
	if l.ObjectsPerResource == 0 || a.GetSubresource() != "" || c == nil {
		return nil
	}
	e, err := n.exceeds(ctx, l.ObjectsPerResource, c.name, a)
	if err != nil {
		return err
	}
	if e != nil && n.judge.refuses(ctx, l, e) {
		return e.error
	}
	return nil
}

func (n *number) exceeds(ctx context.Context, limit int, who string, a admission.Attributes) (*exceeded, error) {
	feed := n.feed.Load()
	if feed == nil {
		return tooMany("ObjectsPerResource", who, 1, "%d: the objects are still being counted", limit), nil
	}
	resource, namespace := stored(a), a.GetNamespace()
	if resource == corev1.Resource("namespaces") {
		namespace = "" // attributes have its own name here
	}
	if n.since.Add(1) < near && feed.Count(namespace, resource) < limit-near {
		return nil, nil
	}
	n.since.Store(0)
	if err := feed.CatchUp(ctx); err != nil {
		return nil, fmt.Errorf("count %s: %w", resource, err)
	}
	if feed.Count(namespace, resource) < limit {
		return nil, nil
	}
	where := "the server"
	if namespace != "" {
		where = fmt.Sprintf("namespace %q", namespace)
	}
	return tooMany("ObjectsPerResource", who, 1, "%d: %s already has that many %s", limit, where, a.GetResource().GroupResource()), nil
}

// stored is the resource that stores the object: both groups of events serve the
// same ones.
func stored(a admission.Attributes) schema.GroupResource {
	if r := a.GetResource().GroupResource(); r != eventsv1.Resource("events") {
		return r
	}
	return corev1.Resource("events")
}
