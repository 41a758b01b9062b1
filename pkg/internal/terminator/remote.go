package terminator

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/sailplane-dev/sailplane/pkg/internal/catalog"
)

// firstTryTimeout is how long another server may take in the first try on a namespace, so
// that the conditions soon name one that hangs. It is also the least time for
// which an API server that took over the work tries before it gives up.
const firstTryTimeout = 5 * time.Second

// ask asks another server itself for the resources of a group version: the
// aggregator asks one that failed only after up to a minute.
func (t *terminator) ask(ctx context.Context, gv schema.GroupVersion) ([]catalog.Target, error) {
	client, err := discovery.NewDiscoveryClientForConfig(t.catalog.Config)
	if err != nil {
		return nil, err
	}
	list, err := client.ServerResourcesForGroupVersionWithContext(ctx, gv.String())
	if err != nil {
		return nil, err
	}
	var all []catalog.Target
	for _, res := range catalog.Targets(gv, list) {
		if res.Emptied() {
			all = append(all, res)
		}
	}
	return all, nil
}

// waits are the group versions of other servers that a namespace waits for.
type waits struct {
	limit time.Duration // for each
	all   map[schema.GroupVersion]wait
}

// wait says until when to wait for a group version. One try is not enough to give
// it up, however long it took: the conditions have to name it first.
type wait struct {
	until time.Time
	again bool // it failed before
}

func (w wait) over(now time.Time) bool { return w.again && !now.Before(w.until) }

// firstTry is the least time for a try on another server, and less than the whole
// wait.
func (w *waits) firstTry() time.Duration { return min(firstTryTimeout, w.limit/2) }

// budget is how long a try on a group version may take.
func (w *waits) budget(gv schema.GroupVersion) time.Duration {
	return max(w.firstTry(), time.Until(w.all[gv].until))
}

// record records which group versions failed. One that no longer fails has all the
// time again. The first call finds in the conditions of the namespace since when an
// earlier server waited.
func (w *waits) record(ns *corev1.Namespace, failed []schema.GroupVersion, asked time.Time) {
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
			if least := asked.Add(w.firstTry()); until.Before(least) {
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

// failingSince returns since when a namespace's conditions tell of a failure; zero
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
