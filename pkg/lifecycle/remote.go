package lifecycle

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
)

const (
	// patience is how long a group version of another server that was Available
	// once holds up the deletion of a namespace while it fails. Then the namespace
	// goes, and what that server holds of it stays there.
	patience = 30 * time.Second
	// glance is how long another server may take in the first look at a namespace,
	// so that one that hangs is in the conditions early. It is also how long a server
	// that took over the work looks for itself before it gives up.
	glance = 5 * time.Second
)

// remotes are the group versions of other servers, and whether their APIService
// ever was Available: nothing was ever written through one that was not.
func remotes(ctx context.Context, client dynamic.Interface, services schema.GroupVersionResource) (map[schema.GroupVersion]bool, error) {
	all, err := client.Resource(services).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list APIServices: %w", err)
	}
	found := map[schema.GroupVersion]bool{}
	for i := range all.Items {
		if gv, remote := remoteOf(&all.Items[i]); remote {
			found[gv] = wasAvailable(&all.Items[i])
		}
	}
	return found, nil
}

// remoteOf is the group version of an APIService, and whether a server that is
// not this plane has it.
func remoteOf(service *unstructured.Unstructured) (gv schema.GroupVersion, remote bool) {
	gv.Group, _, _ = unstructured.NestedString(service.Object, "spec", "group")
	gv.Version, _, _ = unstructured.NestedString(service.Object, "spec", "version")
	elsewhere, _, _ := unstructured.NestedMap(service.Object, "spec", "service")
	return gv, elsewhere != nil
}

// wasAvailable tells whether an APIService is Available or was, which the
// aggregator keeps in a condition of its own.
func wasAvailable(service *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(service.Object, "status", "conditions")
	for _, c := range conditions {
		c, _ := c.(map[string]any)
		if (c["type"] == "Available" || c["type"] == "WasAvailable") && c["status"] == "True" {
			return true
		}
	}
	return false
}

// ask is what another server has of a group version, from itself: the aggregator
// asks one that failed after up to a minute.
func (t *terminator) ask(ctx context.Context, gv schema.GroupVersion) ([]target, error) {
	client, err := discovery.NewDiscoveryClientForConfig(t.plane.Config())
	if err != nil {
		return nil, err
	}
	list, err := client.ServerResourcesForGroupVersionWithContext(ctx, gv.String())
	if err != nil {
		return nil, err
	}
	var all []target
	for _, res := range targets(gv, list) {
		if res.emptied() {
			all = append(all, res)
		}
	}
	return all, nil
}

// waits are the group versions of other servers that a namespace waits for.
type waits struct {
	limit time.Duration // of each
	all   map[schema.GroupVersion]wait
}

// wait is until when a group version is waited for. One look is not enough to give
// it up, however long that took: the conditions have to say it before.
type wait struct {
	until time.Time
	again bool // it failed before
}

func (w wait) over(now time.Time) bool { return w.again && !now.Before(w.until) }

// glance is the least that a look at another server may take, and less than the
// whole wait.
func (w *waits) glance() time.Duration { return min(glance, w.limit/2) }

// budget is how long a look at a group version may take.
func (w *waits) budget(gv schema.GroupVersion) time.Duration {
	return max(w.glance(), time.Until(w.all[gv].until))
}

// note takes which group versions failed when they were asked. One that does not
// fail any more has all the time again. The first look finds in the conditions of
// the namespace since when a server before this one waited.
func (w *waits) note(ns *corev1.Namespace, failed []schema.GroupVersion, asked time.Time) {
	before := w.all
	w.all = map[schema.GroupVersion]wait{}
	for _, gv := range failed {
		known, again := before[gv]
		until := known.until
		if !again {
			until = asked.Add(w.limit)
		}
		if since := failingSince(ns); before == nil && !since.IsZero() {
			until = since.Add(w.limit)
			if least := asked.Add(w.glance()); until.Before(least) {
				until = least
			}
		}
		w.all[gv] = wait{until, again}
	}
}

// next shortens a pause so that it ends when a wait does.
func (w *waits) next(pause time.Duration) time.Duration {
	for _, one := range w.all {
		if left := time.Until(one.until); left > 0 {
			pause = min(pause, left)
		}
	}
	return pause
}

// failingSince is when a namespace's conditions began to tell of a failure; zero
// when they do not.
func failingSince(ns *corev1.Namespace) time.Time {
	var since time.Time
	for _, c := range ns.Status.Conditions {
		failure := c.Type == corev1.NamespaceDeletionDiscoveryFailure || c.Type == corev1.NamespaceDeletionContentFailure
		if failure && c.Status == corev1.ConditionTrue && (since.IsZero() || c.LastTransitionTime.Time.Before(since)) {
			since = c.LastTransitionTime.Time
		}
	}
	return since
}
