package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// catalog is what the plane serves, read from its discovery document when that
// changed.
type catalog struct {
	plane *controlplane.Plane

	mu      sync.Mutex
	changed <-chan struct{}
	read    *served
	at      time.Time
}

// again is how long discovery of which a part failed is used: servers that come
// back change nothing that tells so.
const again = time.Second

// served is one reading of discovery.
type served struct {
	// resources are those of each group in its preferred version.
	resources map[schema.GroupResource]target
	// kinds are the resources by what owner references say, in every version.
	kinds map[schema.GroupVersionKind]target
	// complete: every server answered.
	complete bool
	// failed are group versions whose server did not answer, and why.
	failed map[schema.GroupVersion]error
	// remote are the group versions of other servers, see remotes.
	remote map[schema.GroupVersion]bool
}

// target is a resource that is served.
type target struct {
	schema.GroupVersionResource
	kind       string
	namespaced bool
	verbs      []string
}

func (t target) can(verb string) bool { return slices.Contains(t.verbs, verb) }

// emptied tells whether objects of the resource can be deleted with their namespace.
func (t target) emptied() bool {
	return t.namespaced && t.can("list") && (t.can("deletecollection") || t.can("delete"))
}

// String is how conditions call the resource: "configmaps." in the core group.
func (t target) String() string { return t.Resource + "." + t.Group }

// now is what is served now. Group versions that fail are in the answer.
func (c *catalog) now(ctx context.Context) (*served, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.read != nil && (c.read.complete || time.Since(c.at) < again) {
		select {
		case <-c.changed:
		default:
			return c.read, nil
		}
	}
	changed := c.plane.DiscoveryChanged()
	s, err := discover(ctx, c.plane)
	if err != nil {
		return nil, fmt.Errorf("read discovery: %w", err)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	s.complete = len(s.failed) == 0
	s.keep(c.read)
	c.changed, c.read, c.at = changed, s, time.Now()
	return s, nil
}

// fresh is what is served now, with what is known of other servers right now:
// what an answer of a second ago calls never Available may hold objects since.
func (c *catalog) fresh(ctx context.Context) (*served, error) {
	s, err := c.now(ctx)
	if err != nil || len(s.remote) == 0 {
		return s, err
	}
	with := *s
	if with.remote, err = s.remotes(ctx, c.plane); err != nil {
		return nil, err
	}
	return &with, nil
}

// keep takes what is known of groups whose server does not answer now: one
// whose resources cannot be deleted, as those of metrics, holds up nothing.
func (s *served) keep(old *served) {
	if old == nil {
		return
	}
	for gv := range s.failed {
		known := false
		for gr, t := range old.resources {
			if _, ok := s.resources[gr]; t.GroupVersion() == gv && !ok {
				s.resources[gr], known = t, true
			}
		}
		if known {
			delete(s.failed, gv)
		}
	}
}

func discover(ctx context.Context, p *controlplane.Plane) (*served, error) {
	client, err := discovery.NewDiscoveryClientForConfig(p.Config())
	if err != nil {
		return nil, err
	}
	groups, lists, err := client.ServerGroupsAndResources()
	s := &served{resources: map[schema.GroupResource]target{}, kinds: map[schema.GroupVersionKind]target{}}
	var partial *discovery.ErrGroupDiscoveryFailed
	switch {
	case errors.As(err, &partial):
		s.failed = partial.Groups
	case err != nil:
		return nil, err
	}
	rank := map[string]int{}
	for _, g := range groups {
		for i, v := range g.Versions {
			rank[v.GroupVersion] = i
		}
	}
	slices.SortStableFunc(lists, func(a, b *metav1.APIResourceList) int { return rank[a.GroupVersion] - rank[b.GroupVersion] })
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("group version %q: %w", list.GroupVersion, err)
		}
		for _, t := range targets(gv, list) {
			s.kinds[gv.WithKind(t.kind)] = t
			if _, ok := s.resources[t.GroupResource()]; !ok {
				s.resources[t.GroupResource()] = t
			}
		}
	}
	return s, s.addAnnounced(ctx, p, lists)
}

// targets are the resources of a group version, without sub-resources.
func targets(gv schema.GroupVersion, list *metav1.APIResourceList) []target {
	var all []target
	for _, r := range list.APIResources {
		if !strings.Contains(r.Name, "/") {
			all = append(all, target{GroupVersionResource: gv.WithResource(r.Name), kind: r.Kind, namespaced: r.Namespaced, verbs: r.Verbs})
		}
	}
	return all
}

// addAnnounced adds to the failed group versions those of APIServices that are not
// in discovery yet: the aggregator reads their documents, or learns that it cannot,
// a moment later, and what they hold must not be forgotten.
func (s *served) addAnnounced(ctx context.Context, p *controlplane.Plane, lists []*metav1.APIResourceList) error {
	var err error
	if s.remote, err = s.remotes(ctx, p); err != nil {
		return err
	}
	for gv := range s.remote {
		known := slices.ContainsFunc(lists, func(l *metav1.APIResourceList) bool { return l.GroupVersion == gv.String() })
		if _, failed := s.failed[gv]; known || failed {
			continue
		}
		if s.failed == nil {
			s.failed = map[schema.GroupVersion]error{}
		}
		s.failed[gv] = errors.New("its server was not asked yet what it has")
	}
	return nil
}

// remotes reads the APIServices, where they are served.
func (s *served) remotes(ctx context.Context, p *controlplane.Plane) (map[schema.GroupVersion]bool, error) {
	services, ok := s.resources[schema.GroupResource{Group: "apiregistration.k8s.io", Resource: "apiservices"}]
	if !ok {
		return nil, nil //nolint:nilnil // a plane without APIServices has none
	}
	client, err := dynamic.NewForConfig(p.Config())
	if err != nil {
		return nil, err
	}
	return remotes(ctx, client, services.GroupVersionResource)
}
