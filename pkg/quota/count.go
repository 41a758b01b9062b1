package quota

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/feed"
	"github.com/sailplane-dev/sailplane/pkg/internal/retry"
)

const (
	firstRetry = 5 * time.Millisecond
	lastRetry  = 10 * time.Second
	// settleTime is how long a reservation may wait for its object: the longest that
	// a request takes. Usage is corrected downwards only by deletions, or when
	// nothing was reserved for this long.
	settleTime = 65 * time.Second
	// shrinkPause is how long objects that get smaller are gathered before they are counted.
	shrinkPause = 100 * time.Millisecond
	// recountAfter is when a written quota is counted again. Objects created before
	// admission knew the quota, or its new limits, were not reserved.
	recountAfter = time.Second
)

// key is a quota.
type key struct{ namespace, name string }

// state is what is known of a quota besides the stored object.
type state struct {
	// freed is what made room since the last write of the status.
	freed freed
	// written is the resource version of that write, noticed the last one that
	// the informer reported, and reserved the time of the last write by others.
	written, noticed string
	reserved         time.Time
	// bytes says that the quota limits what is stored.
	bytes bool
}

// freed is what makes room in a namespace: the number of deleted objects by
// resource, the resources with a changed or deleted object, and by how many bytes
// objects got smaller, without those that grew.
type freed struct {
	deleted map[schema.GroupResource]int
	changed map[schema.GroupResource]bool
	bytes   int64
}

func nothingFreed() freed {
	return freed{deleted: map[schema.GroupResource]int{}, changed: map[schema.GroupResource]bool{}}
}

// counter keeps the status of quotas true. used is the number of objects plus
// that of reservations whose object is not written yet, so a count alone does not
// give it: a deletion subtracts what the object had reserved.
type counter struct {
	feed  *feed.Feed
	core  typedcorev1.CoreV1Interface
	queue *retry.Queue[key]
	// elsewhere counts the objects of other servers; may be nil.
	elsewhere controlplane.AggregatedCounter
	// settle is how long a reservation may wait for its object.
	settle time.Duration

	mu     sync.Mutex
	quotas map[string]map[string]*state // by namespace and name
}

func (c *counter) run(ctx context.Context, quotas cache.SharedIndexInformer) error {
	defer c.queue.ShutDown()
	defer c.feed.OnChange(c.changed)()
	if err := c.feed.Await(ctx); err != nil {
		return nil // only the end of the context keeps it from being read
	}
	registration, err := quotas.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { c.enqueueWritten(obj) },
		UpdateFunc: func(_, obj any) { c.enqueueWritten(obj) },
		DeleteFunc: func(obj any) { c.forget(obj) },
	})
	if err != nil {
		return err
	}
	defer func() { _ = quotas.RemoveEventHandler(registration) }() // registered above
	c.queue.Run(ctx, 1, c.count, func(ctx context.Context, k key, err error) {
		klog.FromContext(ctx).Error(err, "Cannot count a quota yet; will retry", "namespace", k.namespace, "name", k.name)
	})
	return nil
}

// enqueueWritten queues a new or written quota.
func (c *counter) enqueueWritten(obj any) {
	q, ok := obj.(*corev1.ResourceQuota)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.quotas[q.Namespace] == nil {
		c.quotas[q.Namespace] = map[string]*state{}
	}
	s := c.quotas[q.Namespace][q.Name]
	if s == nil {
		s = &state{freed: nothingFreed()}
		c.quotas[q.Namespace][q.Name] = s
	}
	_, s.bytes = q.Spec.Hard[StoredBytes]
	k := key{q.Namespace, q.Name}
	if s.noticed = q.ResourceVersion; s.noticed != s.written {
		s.reserved = time.Now()
	}
	c.queue.AddAfter(k, recountAfter) // and again when it is settled
	if !equality.Semantic.DeepEqual(q.Spec.Hard, q.Status.Hard) {
		c.queue.Add(k)
	}
}

func (c *counter) forget(obj any) {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	q, ok := obj.(*corev1.ResourceQuota)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if delete(c.quotas[q.Namespace], q.Name); len(c.quotas[q.Namespace]) == 0 {
		delete(c.quotas, q.Namespace)
	}
}

// changed counts deletions in a namespace with quotas, and objects that get smaller.
// Measured usage may change with any write.
func (c *counter) changed(before, after *feed.Object) {
	o := cmp.Or(before, after)
	resource, less := o.Type.Resource, shrinks(before, after)
	measured := after == nil || resource == corev1.Resource("services") || resource == corev1.Resource("persistentvolumeclaims")
	if !measured && less == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, s := range c.quotas[o.Namespace] {
		s.freed.bytes += less
		if !measured {
			if s.bytes {
				c.queue.AddAfter(key{o.Namespace, name}, shrinkPause)
			}
			continue
		}
		if after == nil {
			s.freed.deleted[resource]++
		}
		if before != nil {
			s.freed.changed[resource] = true
		}
		c.queue.Add(key{o.Namespace, name})
	}
}

// changedElsewhere counts the objects of other servers in a namespace with quotas.
func (c *counter) changedElsewhere(namespace string, resource schema.GroupResource, more int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, s := range c.quotas[namespace] {
		if more < 0 {
			s.freed.deleted[resource] -= more
		}
		c.queue.AddAfter(key{namespace, name}, shrinkPause)
	}
}

// shrinks is how many bytes are free after a write.
func shrinks(before, after *feed.Object) int64 {
	switch {
	case before == nil || before.Type.Resource == uncounted():
		return 0
	case after == nil:
		return before.Bytes()
	}
	return max(before.Bytes()-after.Bytes(), 0)
}

// free notes bytes that were reserved and are not stored. Fewer than none are stored and
// were not reserved.
func (c *counter) free(namespace string, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, s := range c.quotas[namespace] {
		if s.bytes {
			s.freed.bytes += n
			c.queue.AddAfter(key{namespace, name}, shrinkPause)
		}
	}
}

// snapshot is the state of a namespace before its quota is read, so that the quota
// has the reservations of all objects in it.
type snapshot struct {
	there map[schema.GroupResource]feed.Total
	freed freed
	// unsettled is how long a reservation may still wait for its object.
	unsettled time.Duration
}

// take returns the sight of a quota and takes gone out of its state. Give that
// back when the count cannot be written.
func (c *counter) take(k key) (snapshot, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.quotas[k.namespace][k.name]
	if s == nil {
		return snapshot{}, false
	}
	seen := snapshot{there: c.feed.Counts(k.namespace), freed: s.freed}
	s.freed = nothingFreed()
	return seen, true
}

// unsettled is how long a reservation may still wait for its object in this
// version of a quota. The informer is behind the API: a version that it has not
// reported has a new reservation.
func (c *counter) unsettled(k key, version string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.quotas[k.namespace][k.name]
	if s == nil {
		return c.settle
	}
	if version != s.written && version != s.noticed {
		s.reserved = time.Now()
	}
	return c.settle - time.Since(s.reserved)
}

// done notes the written version, or gives back what is gone.
func (c *counter) done(k key, written string, back freed, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.quotas[k.namespace][k.name]
	if s == nil {
		return
	}
	if err == nil {
		s.written = written
		return
	}
	for r, n := range back.deleted {
		s.freed.deleted[r] += n
	}
	maps.Copy(s.freed.changed, back.changed)
	s.freed.bytes += back.bytes
}

// count writes the status of a quota when it is wrong.
func (c *counter) count(ctx context.Context, k key) error {
	if err := c.feed.CatchUp(ctx); err != nil {
		return err
	}
	seen, known := c.take(k)
	if !known {
		return nil
	}
	q, err := c.core.ResourceQuotas(k.namespace).Get(ctx, k.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		seen.unsettled = c.unsettled(k, q.ResourceVersion)
		err = c.write(ctx, q, seen)
	}
	c.done(k, q.GetResourceVersion(), seen.freed, err)
	if seen.unsettled > 0 {
		c.queue.AddAfter(k, seen.unsettled)
	}
	return err
}

// write updates the status of a quota that was read.
func (c *counter) write(ctx context.Context, q *corev1.ResourceQuota, seen snapshot) error {
	used := corev1.ResourceList{}
	for name := range q.Spec.Hard {
		amount, err := c.amount(ctx, q, name, seen)
		if err != nil {
			return fmt.Errorf("count %s: %w", name, err)
		}
		used[name] = amount
	}
	if equality.Semantic.DeepEqual(q.Status.Used, used) && equality.Semantic.DeepEqual(q.Status.Hard, q.Spec.Hard) {
		return nil
	}
	q.Status.Hard, q.Status.Used = q.Spec.Hard, used
	written, err := c.core.ResourceQuotas(q.Namespace).UpdateStatus(ctx, q, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		written.DeepCopyInto(q)
	}
	return err
}

// amount is the usage of one name.
func (c *counter) amount(ctx context.Context, q *corev1.ResourceQuota, name corev1.ResourceName, seen snapshot) (resource.Quantity, error) {
	before, known := q.Status.Used[name]
	if gr, ok := measurable(name); ok {
		now, err := c.measure(ctx, q.Namespace, name)
		if known && seen.unsettled > 0 && !seen.freed.changed[gr] && before.Cmp(now) > 0 {
			now = before // reserved for an object that is not there yet
		}
		return now, err
	}
	if name == StoredBytes {
		return *bytesOf(seen.atLeast(known, before.Value()-seen.freed.bytes, seen.bytes())), nil
	}
	gr, ok := counted(name)
	if !ok {
		return resource.Quantity{Format: resource.DecimalSI}, nil // nothing here uses it
	}
	there := int64(seen.there[gr].Objects)
	if _, here := seen.there[gr]; !here && c.elsewhere != nil {
		if n, counted := c.elsewhere.Count(q.Namespace, gr); counted {
			there = int64(n)
		}
	}
	return *resource.NewQuantity(seen.atLeast(known, before.Value()-int64(seen.freed.deleted[gr]), there), resource.DecimalSI), nil
}

// atLeast is what is there, or what is still reserved.
func (s snapshot) atLeast(known bool, reserved, there int64) int64 {
	if known && s.unsettled > 0 && reserved > there {
		return reserved
	}
	return there
}

// bytes are those of the objects that are there.
func (s snapshot) bytes() int64 {
	sum := int64(0)
	for resource, total := range s.there {
		if resource != uncounted() {
			sum += total.Bytes
		}
	}
	return sum
}

// counted is the resource whose objects a name counts: "count/gadgets.example.com",
// or "configmaps".
func counted(name corev1.ResourceName) (schema.GroupResource, bool) {
	if gr, ok := strings.CutPrefix(string(name), "count/"); ok {
		return schema.ParseGroupResource(gr), true
	}
	switch name {
	case corev1.ResourceConfigMaps, corev1.ResourceSecrets, corev1.ResourceQuotas, corev1.ResourceServices, corev1.ResourcePods,
		corev1.ResourceReplicationControllers, corev1.ResourcePersistentVolumeClaims:
		return corev1.Resource(string(name)), true
	}
	return schema.GroupResource{}, false
}
