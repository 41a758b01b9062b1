// Package terminator empties namespaces that were deleted, and then removes them.
package terminator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/feed"
	"github.com/sailplane-dev/sailplane/pkg/internal/catalog"
	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
)

// Run deletes everything in a namespace that is Terminating, of every resource in
// the catalog of a plane, and then removes the namespace, until the context ends.
// It writes what stands in the way into the conditions of the namespace, as
// Kubernetes does; finalizers are honoured. Stored tells which resources have all
// their objects in the feed.
//
// Run waits for another server that fails as long as the patience lasts, and the
// conditions name it; then the namespace goes, and what the server holds of it when it is
// back. A server whose APIService never was Available holds up nothing, and neither does one
// that held nothing of the namespace when that was last counted.
func Run(
	ctx context.Context, known *catalog.Catalog, f *feed.Feed, stored func(schema.GroupResource) bool, elsewhere Elsewhere,
) error {
	core, err := typedcorev1.NewForConfig(known.Config)
	if err != nil {
		return err
	}
	objects, err := metadata.NewForConfig(known.Config)
	if err != nil {
		return err
	}
	t := &terminator{
		feed: f, stored: stored, namespaces: core.Namespaces(), objects: objects, catalog: known,
		slots: make(chan struct{}, atOnce), running: map[string]chan struct{}{}, elsewhere: elsewhere, removed: utilcache.NewExpiring(),
	}
	return t.run(ctx)
}

// Elsewhere is what other servers have to do with the deletion of namespaces.
type Elsewhere struct {
	// Patience is how long a group version of another server that was Available once holds up
	// the deletion of a namespace while it fails. Then the namespace goes, and what that
	// server holds of it when the server is back.
	Patience time.Duration
	// Counts are how many objects another server has of a group version in a namespace, and
	// whether they were ever counted. May be nil.
	Counts func(namespace string, gv schema.GroupVersion) (counts map[string]int, known bool)
	// Any tells whether there are other servers. Nil: there are none.
	Any func() bool
}

// empty tells whether a server that is away held nothing when it was last counted.
func (e Elsewhere) empty(namespace string, gv schema.GroupVersion) bool {
	if e.Counts == nil {
		return false
	}
	counts, known := e.Counts(namespace, gv)
	for _, n := range counts {
		known = known && n == 0
	}
	return known
}

const (
	// atOnce bounds how many namespaces, and how many resources of each, are
	// emptied at the same time.
	atOnce = 4
	// tries are the shortest and the longest time between two tries on a namespace
	// that something keeps from being removed. Most tries need no wait: the feed tells
	// when the last object is gone.
	firstTry, lastTry = 200 * time.Millisecond, 15 * time.Second
)

// namespaceResource is where namespaces are.
func namespaceResource() schema.GroupResource { return corev1.Resource("namespaces") }

// terminator empties and removes namespaces, each in a goroutine of its own for as
// long as it is Terminating: one that waits delays no other.
type terminator struct {
	feed       *feed.Feed
	stored     func(schema.GroupResource) bool
	namespaces typedcorev1.NamespaceInterface
	objects    metadata.Interface
	catalog    *catalog.Catalog
	slots      chan struct{}
	removed    *utilcache.Expiring // names of namespaces, for as long as requestsEnd
	elsewhere  Elsewhere

	mu      sync.Mutex
	ended   bool
	running map[string]chan struct{} // by namespace; a value wakes it
	work    sync.WaitGroup
}

func (t *terminator) run(ctx context.Context) error {
	defer t.feed.OnChange(func(before, after *feed.Object) { t.changed(ctx, before, after) })()
	if err := t.feed.Await(ctx); err != nil {
		return nil // Await fails only when the context ends
	}
	var terminating []string
	for o := range t.feed.All() {
		if o.Type.Resource == namespaceResource() && o.Deleting {
			terminating = append(terminating, o.Name)
		}
	}
	for _, name := range terminating {
		t.wake(ctx, name)
	}
	t.collect(ctx)
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	t.work.Wait()
	return nil
}

// changed starts work on a namespace that is Terminating, wakes one whose last
// object is gone, and starts again on one that was removed and has an object.
func (t *terminator) changed(ctx context.Context, before, after *feed.Object) {
	switch {
	case after != nil && after.Deleting && after.Type.Resource == namespaceResource():
		t.wake(ctx, after.Name)
	case after == nil && before.Type.Resource == namespaceResource():
		t.removed.Set(before.Name, true, requestsEnd)
		if len(t.feed.Counts(before.Name)) > 0 {
			t.wake(ctx, before.Name)
		}
	case after == nil && before.Namespace != "" && t.isRunning(before.Namespace) &&
		t.feed.Count(before.Namespace, before.Type.Resource) == 0:
		t.wake(ctx, before.Namespace)
	case before == nil && after.Namespace != "" && t.removedLately(after.Namespace):
		t.wake(ctx, after.Namespace)
	}
}

func (t *terminator) isRunning(namespace string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running[namespace] != nil
}

// wake has a namespace tried again, or starts work on it.
func (t *terminator) wake(ctx context.Context, namespace string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended || ctx.Err() != nil {
		return
	}
	again := t.running[namespace]
	if again == nil {
		again = make(chan struct{}, 1)
		t.running[namespace] = again
		t.work.Go(func() { t.terminate(ctx, namespace, again) })
	}
	signal.Wake(again)
}

// terminate tries until the namespace is gone.
func (t *terminator) terminate(ctx context.Context, namespace string, again <-chan struct{}) {
	log := klog.FromContext(ctx)
	pause, w := firstTry, &waits{limit: t.elsewhere.Patience}
	for {
		select {
		case <-again:
		case <-time.After(w.next(pause)):
			pause = min(2*pause, lastTry)
		case <-ctx.Done():
			return
		}
		done, err := t.try(ctx, namespace, w)
		if err != nil && ctx.Err() == nil {
			log.Error(err, "A namespace cannot be removed yet", "namespace", namespace)
		}
		if done && t.leave(namespace, again) {
			return
		}
		if done {
			w = &waits{limit: t.elsewhere.Patience} // another namespace has the name
		}
	}
}

// leave ends the work on a namespace, unless it has been woken since.
func (t *terminator) leave(namespace string, again <-chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(again) > 0 {
		return false
	}
	delete(t.running, namespace)
	return true
}

// try deletes what the namespace holds, and removes the namespace if it is empty;
// else it writes down what is left. done: there is nothing more to do.
func (t *terminator) try(ctx context.Context, name string, w *waits) (done bool, err error) {
	late := t.late(name) // before the Get: the namespace may be created again
	ns, err := t.namespaces.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return t.sweep(ctx, late)
	case err != nil:
		return false, err
	case ns.DeletionTimestamp == nil || !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes):
		return true, nil
	}
	s, err := t.catalog.Fresh(ctx)
	if err != nil {
		return false, err
	}
	found := t.empty(ctx, s, w, name)
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	failing := found.failing(s.Remote)
	w.record(ns, failing, found.asked)
	found.waits, found.now = w.all, time.Now()
	if found.blocks() {
		return false, errors.Join(found.err(), t.report(ctx, ns, found))
	}
	if len(failing) > 0 {
		if err := t.leaveBehind(ctx, name, failing); err != nil {
			return false, fmt.Errorf("note what stays behind: %w", err)
		}
	}
	if err := t.finalize(ctx, ns); err != nil {
		return false, err
	}
	if len(failing) > 0 {
		klog.FromContext(ctx).Error(found.err(),
			"Removed a namespace although some servers failed: their objects in it go when they are back",
			"namespace", name, "groups", fmt.Sprint(failing))
	}
	return true, nil
}

// finalize takes "kubernetes" off the namespace's finalizers. If it was the last,
// that removes the namespace.
func (t *terminator) finalize(ctx context.Context, ns *corev1.Namespace) error {
	ns = ns.DeepCopy()
	ns.Spec.Finalizers = slices.DeleteFunc(ns.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	_, err := t.namespaces.Finalize(ctx, ns, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("finalize: %w", err)
	}
	return nil
}

// report writes what is left into the conditions of the namespace.
func (t *terminator) report(ctx context.Context, ns *corev1.Namespace, found *remains) error {
	ns = ns.DeepCopy()
	if !setConditions(&ns.Status, found.conditions(), metav1.NewTime(found.asked)) {
		return nil
	}
	_, err := t.namespaces.UpdateStatus(ctx, ns, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write conditions: %w", err)
	}
	return nil
}
