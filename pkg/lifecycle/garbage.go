package lifecycle

import (
	"context"
	"time"

	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/feed"
	"github.com/sailplane-dev/sailplane/pkg/internal/catalog"
	"github.com/sailplane-dev/sailplane/pkg/internal/retry"
)

// GarbageCollection is the part that deletes objects whose owners are all gone,
// and makes the propagation policies of a delete true: Background, Foreground
// (which waits for owner references with blockOwnerDeletion) and Orphan.
//
// An owner in another namespace than its dependent counts as gone, and a
// cluster-scoped object with a namespaced owner is never collected, as in
// Kubernetes:
// https://kubernetes.io/docs/concepts/architecture/garbage-collection/
type GarbageCollection struct{}

// Install declares the work.
func (GarbageCollection) Install(p *controlplane.Plan) error {
	p.Feed()
	p.CollectGarbage()
	p.Work(controlplane.Work{Name: "garbage-collection", Elected: true, Run: func(ctx context.Context, plane *controlplane.Plane) error {
		objects, err := metadata.NewForConfig(plane.Config())
		if err != nil {
			return err
		}
		c := &collector{
			feed: plane.Feed(), objects: objects, events: plane.Client().CoreV1(),
			catalog: &catalog.Catalog{Config: plane.Config(), Changed: plane.DiscoveryChanged},
			queue:   retry.NewQueue[feed.UID](firstRetry, lastRetry),
			gone:    lru.New(remembered),
		}
		return c.run(ctx)
	}})
	return nil
}

const (
	// collectors is how many objects are worked on at the same time.
	collectors = 8
	// firstRetry and lastRetry bound the pause after an error, such as an owner
	// of a kind that nobody serves.
	firstRetry, lastRetry = 5 * time.Millisecond, time.Minute
	// remembered is how many UIDs of deleted objects are kept. They save a
	// request for an owner that is gone; no UID comes back.
	remembered = 4096
)

// collector works on objects by UID. The feed says when one needs a check, and
// the answers of the API then decide.
type collector struct {
	feed    *feed.Feed
	objects metadata.Interface
	events  typedcorev1.EventsGetter
	catalog *catalog.Catalog
	queue   *retry.Queue[feed.UID]
	gone    *lru.Cache
}

func (c *collector) run(ctx context.Context) error {
	defer c.queue.ShutDown()
	defer c.feed.OnChange(c.changed)()
	if err := c.feed.Await(ctx); err != nil {
		return nil // only the end of the context keeps it from being read
	}
	var wanting []*feed.Object
	for o := range c.feed.All() {
		if o.Owned() || o.Deleting && (o.Foreground || o.Orphan) {
			wanting = append(wanting, o)
		}
	}
	for _, o := range wanting {
		c.appeared(o)
	}
	c.queue.Run(ctx, collectors, c.collect, func(ctx context.Context, id feed.UID, err error) {
		log := klog.FromContext(ctx)
		if o := c.feed.ByUID(id); o != nil {
			log = log.WithValues("resource", o.Type.Resource, "namespace", o.Namespace, "name", o.Name)
		}
		log.V(2).Info("Cannot collect an object yet; will retry", "cause", err)
	})
	return nil
}

// changed decides which objects need a check after a write.
func (c *collector) changed(before, after *feed.Object) {
	if before != nil && (after == nil || after.UID != before.UID) {
		c.vanished(before)
		before = nil
	}
	if after == nil {
		return
	}
	if before != nil {
		c.unblocked(before)
	}
	c.appeared(after)
	if after.Deleting && after.Foreground && (before == nil || !before.Deleting || !before.Foreground) {
		for _, d := range c.feed.Dependents(after.UID) {
			c.queue.Add(d.UID)
		}
	}
}

// vanished queues the objects that a deleted object owned or kept waiting.
func (c *collector) vanished(o *feed.Object) {
	c.gone.Add(o.UID, struct{}{})
	for _, d := range c.feed.Dependents(o.UID) {
		c.queue.Add(d.UID)
	}
	c.unblocked(o)
}

// unblocked queues owners that wait for this dependent, which is gone or may no
// longer depend on them.
func (c *collector) unblocked(o *feed.Object) {
	for _, owner := range o.Owners() {
		if c.waits(owner.UID) {
			c.queue.Add(owner.UID)
		}
	}
}

// appeared queues an object that must be finished, or some of whose owners are
// gone or wait for it.
func (c *collector) appeared(o *feed.Object) {
	if o.Deleting {
		if o.Foreground || o.Orphan {
			c.queue.Add(o.UID)
		}
		return
	}
	for _, owner := range o.Owners() {
		found := c.feed.ByUID(owner.UID)
		if !owner.Is(found) || found.Namespace != "" && found.Namespace != o.Namespace || c.waits(owner.UID) {
			c.queue.Add(o.UID)
			return
		}
	}
}

// waits tells whether an owner waits for its dependents to be deleted.
func (c *collector) waits(owner feed.UID) bool {
	o := c.feed.ByUID(owner)
	return o != nil && o.Deleting && o.Foreground
}

// isGone tells whether an object of the plane with that UID was deleted.
func (c *collector) isGone(id feed.UID) bool {
	_, gone := c.gone.Get(id)
	return gone
}
