package aggregator

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	discoveryendpoint "k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/retry"
)

// reporter tells clients of the servers behind: in the conditions of APIServices, in
// discovery, and with APIServices for what a given server has.
type reporter struct {
	remotes   *remotes
	publisher *publisher
	plane     *controlplane.Plane
	manager   discoveryendpoint.ResourceManager
	client    clientset.Interface
	queue     *retry.Queue[string] // names of APIServices, and of servers

	told atomic.Pointer[map[schema.GroupVersion]conflict]

	mu     sync.Mutex // of what discovery lists: the last state of servers, of the last routes
	listed map[schema.GroupVersion]bool
}

func newReporter(r *remotes, p *publisher) *reporter {
	all := &reporter{remotes: r, publisher: p}
	all.told.Store(&map[schema.GroupVersion]conflict{})
	return all
}

// conflictsKey in the queue is for the conflicts of all.
const conflictsKey = "conflicts"

// serverKey begins the keys of servers in the queue; no APIService has it in its name.
const serverKey = "server/"

// run reports until the context ends. While there are no remote APIServices, it only waits.
func (r *reporter) run(ctx context.Context, p *controlplane.Plane) error {
	if r.remotes.changed.Await(ctx, r.remotes.any) != nil {
		return nil
	}
	client, err := clientset.NewForConfig(asAggregator(p.ProtobufConfig()))
	if err != nil {
		return err
	}
	r.plane, r.client, r.listed = p, client, map[schema.GroupVersion]bool{}
	r.queue = retry.NewQueue[string](checkInterval, checkTimeout)
	r.publisher.want()
	for _, d := range localOnly(p.Dynamic()) {
		if err := d.Subscribe(func() { r.queue.Add(conflictsKey) }); err != nil {
			r.queue.ShutDown()
			return err
		}
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { r.remotes.renew(ctx) })
	running.Go(func() {
		r.queue.Run(ctx, 4, r.handle, func(ctx context.Context, key string, err error) {
			klog.FromContext(ctx).Error(err, "Could not write an APIService", "for", key)
		})
	})
	r.remotes.follow(ctx, r.routesChanged, r.stateChanged)
	return nil
}

// routesChanged reports on all APIServices that are or were remote.
func (r *reporter) routesChanged() {
	r.mu.Lock()
	defer r.mu.Unlock()
	routes := *r.remotes.routes.Load()
	for gv, one := range routes {
		r.list(gv, one)
		r.listed[gv] = true
		r.queue.Add(nameOf(gv))
	}
	for gv := range r.listed {
		if routes[gv] == nil {
			r.manager.RemoveGroupVersion(metav1.GroupVersion(gv))
			delete(r.listed, gv)
			r.queue.Add(nameOf(gv)) // if it is local now
		}
	}
	r.queue.Add(conflictsKey)
	for _, g := range r.remotes.given { // one that was made may be gone
		r.queue.Add(serverKey + g.label())
	}
	for _, label := range r.remotes.labels() { // one may be of a server that is given no more
		r.queue.Add(serverKey + label)
	}
}

// stateChanged reports on the APIServices of a server.
func (r *reporter) stateChanged(s *server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for gv, one := range *r.remotes.routes.Load() {
		if one.server == s {
			r.list(gv, one)
			r.queue.Add(nameOf(gv))
		}
	}
	if s.given != nil {
		r.queue.Add(serverKey + s.given.label())
		r.queue.Add(conflictsKey)
	}
}

// list has aggregated discovery list what is known of a group version. What is not current is
// stale, as in kube-aggregator.
func (r *reporter) list(gv schema.GroupVersion, one *route) {
	now := one.server.state.Load()
	entry, ok := now.found[gv]
	if !ok {
		entry = resources{Version: gv.Version}
	}
	entry.Freshness = apidiscoveryv2.DiscoveryFreshnessCurrent
	if now.available(gv) != nil {
		entry.Freshness = apidiscoveryv2.DiscoveryFreshnessStale
	}
	r.manager.AddGroupVersion(gv.Group, entry)
	r.manager.SetGroupVersionPriority(metav1.GroupVersion(gv), int(one.GroupPriority), int(one.VersionPriority))
}

// handle writes what a key of the queue is about.
func (r *reporter) handle(ctx context.Context, key string) error {
	if label, ok := strings.CutPrefix(key, serverKey); ok {
		return r.announce(ctx, label)
	}
	if key == conflictsKey {
		return r.tellConflicts(ctx)
	}
	return r.setConditions(ctx, key)
}

// setConditions writes the conditions of an APIService, if they are others.
func (r *reporter) setConditions(ctx context.Context, name string) error {
	found, err := r.remotes.lister.Get(name)
	if err != nil {
		return retry.UnlessGone(err)
	}
	s := found.DeepCopy()
	if now := r.condition(s); now != nil {
		set(s, *now)
	}
	c := (*r.told.Load())[schema.GroupVersion{Group: s.Spec.Group, Version: s.Spec.Version}]
	if c.visible && s.Spec.Service != nil {
		set(s, apiregistrationv1.APIServiceCondition{
			Type: Conflicting, Status: apiregistrationv1.ConditionTrue, LastTransitionTime: metav1.Now(),
			Reason: "ServedElsewhere", Message: c.String(),
		})
	} else {
		s.Status.Conditions = slices.DeleteFunc(s.Status.Conditions,
			func(c apiregistrationv1.APIServiceCondition) bool { return c.Type == Conflicting })
	}
	if equality.Semantic.DeepEqual(found.Status, s.Status) {
		return nil
	}
	_, err = r.client.ApiregistrationV1().APIServices().UpdateStatus(ctx, s, metav1.UpdateOptions{})
	return retry.UnlessGone(err)
}

// set sets a condition that says something else than before.
func set(s *apiregistrationv1.APIService, now apiregistrationv1.APIServiceCondition) {
	was := helper.GetAPIServiceConditionByType(s, now.Type)
	if was == nil || was.Status != now.Status || was.Reason != now.Reason || was.Message != now.Message {
		helper.SetAPIServiceCondition(s, now)
	}
}

// condition is what condition Available of an APIService has to be, with the reasons of
// kube-aggregator; nil as long as nothing is known.
func (r *reporter) condition(s *apiregistrationv1.APIService) *apiregistrationv1.APIServiceCondition {
	c := apiregistrationv1.APIServiceCondition{
		Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue, LastTransitionTime: metav1.Now(),
		Reason: "Passed", Message: "all checks passed",
	}
	if s.Spec.Service == nil {
		c.Reason, c.Message = "Local", "Local APIServices are always available"
		return &c
	}
	one := (*r.remotes.routes.Load())[schema.GroupVersion{Group: s.Spec.Group, Version: s.Spec.Version}]
	if one == nil {
		return nil // it is new, and gets a route in a moment
	}
	switch err := one.server.state.Load().available(schema.GroupVersion{Group: one.Group, Version: one.Version}); {
	case err == errUnchecked: //nolint:errorlint // it is never wrapped
		return nil
	case err != nil:
		c.Status, c.Reason, c.Message = apiregistrationv1.ConditionFalse, reasonOf(err), err.Error()
	}
	return &c
}

// announce makes the APIServices for what a given server has, and removes those that were made
// for what it has no more.
func (r *reporter) announce(ctx context.Context, label string) error {
	services := r.client.ApiregistrationV1().APIServices()
	found := map[schema.GroupVersion]resources{} // of a server that is given no more: nothing
	var g *given
	if i := slices.IndexFunc(r.remotes.given, func(g *given) bool { return g.label() == label }); i >= 0 {
		g = r.remotes.given[i]
		if found = r.remotes.foundBy(g); found == nil {
			return nil // it is not known
		}
	}
	local := r.local()
	for n, gv := range ranked(found) {
		if local[gv] != "" {
			continue
		}
		if _, err := r.remotes.lister.Get(nameOf(gv)); err == nil {
			continue
		}
		if _, err := services.Create(ctx, g.apiService(gv, n), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	made, err := r.remotes.lister.List(labels.SelectorFromSet(labels.Set{ServerLabel: label}))
	if err != nil {
		return err
	}
	for _, s := range made {
		if _, ok := found[schema.GroupVersion{Group: s.Spec.Group, Version: s.Spec.Version}]; ok || s.Spec.Service == nil {
			continue
		}
		uid := s.UID
		err := services.Delete(ctx, s.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if retry.UnlessGone(err) != nil && !apierrors.IsConflict(err) {
			return err
		}
	}
	return nil
}
