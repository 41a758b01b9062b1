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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
}

// target is a resource that is served.
type target struct {
	schema.GroupVersionResource
	kind       string
	namespaced bool
	verbs      []string
}

func (t target) can(verb string) bool { return slices.Contains(t.verbs, verb) }

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
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") {
				continue
			}
			t := target{GroupVersionResource: gv.WithResource(r.Name), kind: r.Kind, namespaced: r.Namespaced, verbs: r.Verbs}
			s.kinds[gv.WithKind(r.Kind)] = t
			if _, ok := s.resources[t.GroupResource()]; !ok {
				s.resources[t.GroupResource()] = t
			}
		}
	}
	return s, s.addAnnounced(ctx, p, lists)
}

// addAnnounced adds to the failed group versions those of APIServices that are not
// in discovery yet: the aggregator reads their documents, or learns that it cannot,
// a moment later, and what they hold must not be forgotten.
func (s *served) addAnnounced(ctx context.Context, p *controlplane.Plane, lists []*metav1.APIResourceList) error {
	services, ok := s.resources[schema.GroupResource{Group: "apiregistration.k8s.io", Resource: "apiservices"}]
	if !ok {
		return nil
	}
	client, err := dynamic.NewForConfig(p.Config())
	if err != nil {
		return err
	}
	all, err := client.Resource(services.GroupVersionResource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range all.Items {
		gv, remote := remoteOf(&all.Items[i])
		known := slices.ContainsFunc(lists, func(l *metav1.APIResourceList) bool { return l.GroupVersion == gv.String() })
		if _, failed := s.failed[gv]; !remote || known || failed {
			continue
		}
		if s.failed == nil {
			s.failed = map[schema.GroupVersion]error{}
		}
		s.failed[gv] = errors.New("its server was not asked yet what it has")
	}
	return nil
}

// remoteOf is the group version of an APIService, and whether a server that is
// not this plane has it.
func remoteOf(service *unstructured.Unstructured) (gv schema.GroupVersion, remote bool) {
	gv.Group, _, _ = unstructured.NestedString(service.Object, "spec", "group")
	gv.Version, _, _ = unstructured.NestedString(service.Object, "spec", "version")
	elsewhere, _, _ := unstructured.NestedMap(service.Object, "spec", "service")
	return gv, elsewhere != nil
}
