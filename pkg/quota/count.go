package quota

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiquota "k8s.io/apiserver/pkg/quota/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

const (
	firstRetry = 5 * time.Millisecond
	lastRetry  = 10 * time.Second
	// settle is how long a reservation may wait for its object: the longest that
	// a request takes. What is used is corrected downwards only by what was
	// deleted, or when nothing was reserved for so long.
	settle = 65 * time.Second
	// soon is when a quota that was written is looked at again. What was created
	// before admission knew it, or its new limits, was not reserved.
	soon = time.Second
)

// key is a quota.
type key struct{ namespace, name string }

// state is what is known of a quota besides what is stored.
type state struct {
	// deleted are the objects that went since the last write of the status.
	deleted map[schema.GroupResource]int
	// written is the resource version of that write, and reserved when somebody
	// else wrote last.
	written  string
	reserved time.Time
}

// counter keeps the status of quotas true. used is the number of objects plus
// that of reservations whose object is not written yet, so a count alone does
// not give it: a deletion takes off what the object had reserved.
type counter struct {
	feed  *controlplane.Feed
	core  typedcorev1.CoreV1Interface
	queue workqueue.TypedRateLimitingInterface[key]
	// settle is how long a reservation may wait for its object.
	settle time.Duration

	mu     sync.Mutex
	quotas map[string]map[string]*state // by namespace and name
}

func (c *counter) run(ctx context.Context, quotas cache.SharedIndexInformer) error {
	defer c.feed.OnChange(c.changed)()
	if err := c.feed.Await(ctx); err != nil {
		c.queue.ShutDown()
		return nil // only the end of the context keeps it from being read
	}
	registration, err := quotas.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { c.noticed(obj) },
		UpdateFunc: func(_, obj any) { c.noticed(obj) },
		DeleteFunc: func(obj any) { c.gone(obj) },
	})
	if err != nil {
		return err
	}
	defer func() { _ = quotas.RemoveEventHandler(registration) }() // it is there
	stop := context.AfterFunc(ctx, c.queue.ShutDown)
	defer stop()
	for {
		k, quit := c.queue.Get()
		if quit {
			return nil
		}
		switch err := c.count(ctx, k); {
		case err == nil:
			c.queue.Forget(k)
		case ctx.Err() != nil:
		case apierrors.IsConflict(err):
			c.queue.AddAfter(k, firstRetry) // there was a reservation: the pause is not to grow
		default:
			klog.FromContext(ctx).Error(err, "A quota cannot be counted yet", "namespace", k.namespace, "name", k.name)
			c.queue.AddRateLimited(k)
		}
		c.queue.Done(k)
	}
}

// noticed takes note of a quota that is new or was written.
func (c *counter) noticed(obj any) {
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
		s = &state{deleted: map[schema.GroupResource]int{}}
		c.quotas[q.Namespace][q.Name] = s
	}
	k := key{q.Namespace, q.Name}
	if q.ResourceVersion != s.written {
		s.reserved = time.Now()
	}
	c.queue.AddAfter(k, soon) // and again when it is settled
	if !equality.Semantic.DeepEqual(q.Spec.Hard, q.Status.Hard) {
		c.queue.Add(k)
	}
}

func (c *counter) gone(obj any) {
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

// changed counts what was deleted from a namespace with quotas. What is measured
// may change with any write.
func (c *counter) changed(before, after *controlplane.FeedObject) {
	o := before
	if o == nil {
		o = after
	}
	resource := o.Type.Resource
	if after != nil && resource != corev1.Resource("services") && resource != corev1.Resource("persistentvolumeclaims") {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, s := range c.quotas[o.Namespace] {
		if after == nil {
			s.deleted[resource]++
		}
		c.queue.Add(key{o.Namespace, name})
	}
}

// sight is what was seen of a namespace before its quota is read: what was
// reserved for every object in it is in the quota then.
type sight struct {
	there   map[schema.GroupResource]int
	deleted map[schema.GroupResource]int
	// unsettled is how long a reservation may still wait for its object.
	unsettled time.Duration
}

// take is the state of a quota, with what was deleted, which is to be given back
// when the count cannot be written.
func (c *counter) take(k key) (sight, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.quotas[k.namespace][k.name]
	if s == nil {
		return sight{}, false
	}
	seen := sight{there: c.feed.Counts(k.namespace), deleted: s.deleted, unsettled: c.settle - time.Since(s.reserved)}
	s.deleted = map[schema.GroupResource]int{}
	return seen, true
}

// done notes what was written, or gives deletions back.
func (c *counter) done(k key, written string, deleted map[schema.GroupResource]int, err error) {
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
	for r, n := range deleted {
		s.deleted[r] += n
	}
}

// count writes the status of a quota when it is not true.
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
		err = c.write(ctx, q, seen)
	}
	c.done(k, q.GetResourceVersion(), seen.deleted, err)
	if seen.unsettled > 0 {
		c.queue.AddAfter(k, seen.unsettled)
	}
	return err
}

// write brings the status of a quota as it was read up to date.
func (c *counter) write(ctx context.Context, q *corev1.ResourceQuota, seen sight) error {
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

// amount is what is used of one name.
func (c *counter) amount(ctx context.Context, q *corev1.ResourceQuota, name corev1.ResourceName, seen sight) (resource.Quantity, error) {
	switch name {
	case corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers, corev1.ResourceRequestsStorage:
		return c.measure(ctx, q.Namespace, name)
	}
	gr, ok := counted(name)
	if !ok {
		return resource.Quantity{Format: resource.DecimalSI}, nil // nothing here uses it
	}
	there := int64(seen.there[gr])
	before, known := q.Status.Used[name]
	if n := before.Value() - int64(seen.deleted[gr]); known && seen.unsettled > 0 && n > there {
		there = n
	}
	return *resource.NewQuantity(there, resource.DecimalSI), nil
}

// measure asks the API for objects, since the feed does not have what is in them.
func (c *counter) measure(ctx context.Context, namespace string, name corev1.ResourceName) (resource.Quantity, error) {
	var items []runtime.Object
	evaluator := services()
	if name == corev1.ResourceRequestsStorage {
		evaluator = claims()
		list, err := c.core.PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return resource.Quantity{}, err
		}
		for i := range list.Items {
			items = append(items, &list.Items[i])
		}
	} else {
		list, err := c.core.Services(namespace).List(ctx, metav1.ListOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return resource.Quantity{}, err
		}
		for i := range list.Items {
			items = append(items, &list.Items[i])
		}
	}
	sum := corev1.ResourceList{name: *resource.NewQuantity(0, resource.DecimalSI)}
	for _, item := range items {
		usage, err := evaluator.Usage(item)
		if err != nil {
			return resource.Quantity{}, err
		}
		sum = apiquota.Add(sum, usage)
	}
	return sum[name], nil
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
