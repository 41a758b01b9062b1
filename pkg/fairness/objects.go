package fairness

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/sailplane-dev/sailplane/pkg/feed"
	"github.com/sailplane-dev/sailplane/pkg/internal/loopback"
)

// size admits objects of at most ObjectBytes.
type size struct{ now current }

// Handles implements admission.Interface.
func (*size) Handles(o admission.Operation) bool {
	return o == admission.Create || o == admission.Update
}

// Validate implements admission.ValidationInterface: the object is as it would
// be stored. Sub-resources write objects as well; those with a kind of their own
// (bindings, scale) are small.
func (s *size) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	limit := s.now(ctx).ObjectBytes
	if limit == 0 || a.GetObject() == nil || loopback.From(ctx) {
		return nil
	}
	n, err := bytesOf(a.GetObject())
	if err != nil || n <= limit {
		return err
	}
	if old := a.GetOldObject(); old != nil {
		// An object stored without the limit can still lose its finalizers.
		if before, err := bytesOf(old); err != nil || n <= before {
			return err
		}
	}
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit ObjectBytes is %d: %s %q has %d bytes as JSON",
		limit, a.GetResource().GroupResource(), a.GetName(), n))
}

// bytesOf is the size of an object as JSON.
func bytesOf(o runtime.Object) (int, error) {
	var n counter
	if err := json.NewEncoder(&n).Encode(o); err != nil {
		return 0, fmt.Errorf("measure the object: %w", err)
	}
	return int(n) - len("\n"), nil
}

// counter counts what is written to it.
type counter int

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// number admits ObjectsPerResource.
type number struct {
	now   current
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
	limit := n.now(ctx).ObjectsPerResource
	if limit == 0 || a.GetSubresource() != "" || loopback.From(ctx) {
		return nil
	}
	feed := n.feed.Load()
	if feed == nil {
		return tooMany(1, "ObjectsPerResource is %d: the objects are still being counted", limit)
	}
	resource, namespace := stored(a), a.GetNamespace()
	if resource == corev1.Resource("namespaces") {
		namespace = "" // attributes have its own name here
	}
	if n.since.Add(1) < near && feed.Count(namespace, resource) < limit-near {
		return nil
	}
	n.since.Store(0)
	if err := feed.CatchUp(ctx); err != nil {
		return fmt.Errorf("count %s: %w", resource, err)
	}
	if feed.Count(namespace, resource) < limit {
		return nil
	}
	where := "the server"
	if namespace != "" {
		where = fmt.Sprintf("namespace %q", namespace)
	}
	return tooMany(1, "ObjectsPerResource is %d: %s already has that many %s", limit, where, a.GetResource().GroupResource())
}

// stored is the resource that stores the object: both groups of events serve the
// same ones.
func stored(a admission.Attributes) schema.GroupResource {
	if r := a.GetResource().GroupResource(); r != eventsv1.Resource("events") {
		return r
	}
	return corev1.Resource("events")
}
