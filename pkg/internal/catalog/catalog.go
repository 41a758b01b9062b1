// Package catalog reads what a plane serves from its discovery, for work on objects
// of every kind.
package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// Catalog is what the plane serves, read again from discovery when that changed.
type Catalog struct {
	// Config is the configuration of a client of the plane.
	Config *rest.Config
	// Changed returns a channel that is closed when discovery may have changed since
	// the call.
	Changed func() <-chan struct{}

	mu      sync.Mutex
	changed <-chan struct{}
	read    *Served
	at      time.Time
}

// incompleteTTL is how long incomplete discovery is used: nothing tells when a server that
// failed is back.
const incompleteTTL = time.Second

// Served is one reading of discovery.
type Served struct {
	// Resources are the resources of each group, in its preferred version.
	Resources map[schema.GroupResource]Target
	// Kinds are the resources by the kind in owner references, in every version.
	Kinds map[schema.GroupVersionKind]Target
	// complete: every server answered.
	complete bool
	// Failed are group versions whose server did not answer, and why.
	Failed map[schema.GroupVersion]error
	// Remote are the group versions of other servers, and whether their APIService ever
	// was Available: nothing was ever written through one that was not.
	Remote map[schema.GroupVersion]bool
}

// Target is a resource that is served.
type Target struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
	Verbs      []string
}

// Can tells whether the resource has a verb.
func (t Target) Can(verb string) bool { return slices.Contains(t.Verbs, verb) }

// In returns the client of the resource's objects in a namespace, or in the plane
// for cluster-scoped ones.
func (t Target) In(objects metadata.Interface, namespace string) metadata.ResourceInterface {
	if t.Namespaced {
		return objects.Resource(t.GroupVersionResource).Namespace(namespace)
	}
	return objects.Resource(t.GroupVersionResource)
}

// Emptied tells whether objects of the resource can be deleted with their namespace.
func (t Target) Emptied() bool {
	return t.Namespaced && t.Can("list") && (t.Can("deletecollection") || t.Can("delete"))
}

// String is the resource's name in conditions: "configmaps." in the core group.
func (t Target) String() string { return t.Resource + "." + t.Group }

// Now returns what is served now, including the group versions that fail.
func (c *Catalog) Now(ctx context.Context) (*Served, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.read != nil && (c.read.complete || time.Since(c.at) < incompleteTTL) {
		select {
		case <-c.changed:
		default:
			return c.read, nil
		}
	}
	changed := c.Changed()
	s, err := discover(ctx, c.Config)
	if err != nil {
		return nil, fmt.Errorf("read discovery: %w", err)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	s.complete = len(s.Failed) == 0
	c.changed, c.read, c.at = changed, s, time.Now()
	return s, nil
}

// Fresh returns what is served now, with the present state of other servers: one
// that had never been Available a second ago may hold objects now.
func (c *Catalog) Fresh(ctx context.Context) (*Served, error) {
	s, err := c.Now(ctx)
	if err != nil || len(s.Remote) == 0 {
		return s, err
	}
	with := *s
	if with.Remote, err = remotes(ctx, c.Config); err != nil {
		return nil, err
	}
	return &with, nil
}

func discover(ctx context.Context, config *rest.Config) (*Served, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	groups, lists, err := client.ServerGroupsAndResources()
	s := &Served{Resources: map[schema.GroupResource]Target{}, Kinds: map[schema.GroupVersionKind]Target{}}
	var partial *discovery.ErrGroupDiscoveryFailed
	switch {
	case errors.As(err, &partial):
		s.Failed = partial.Groups
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
		for _, t := range Targets(gv, list) {
			s.Kinds[gv.WithKind(t.Kind)] = t
			if _, ok := s.Resources[t.GroupResource()]; !ok {
				s.Resources[t.GroupResource()] = t
			}
		}
	}
	if err := s.addAnnounced(ctx, config, lists); err != nil {
		return nil, err
	}
	return s, s.addStale(ctx, client)
}

// addStale adds what discovery lists as stale, which the client takes for failed: what a
// server had that does not answer now. One with nothing that can be deleted, such as metrics,
// holds up nothing.
func (s *Served) addStale(ctx context.Context, client *discovery.DiscoveryClient) error {
	if len(s.Failed) == 0 {
		return nil
	}
	content, err := client.RESTClient().Get().AbsPath("/apis").SetHeader("Accept", discovery.AcceptV2).Do(ctx).Raw()
	if err != nil {
		return err
	}
	var list apidiscoveryv2.APIGroupDiscoveryList
	if err := json.Unmarshal(content, &list); err != nil {
		return err
	}
	for _, g := range list.Items {
		for _, v := range g.Versions {
			gv := schema.GroupVersion{Group: g.Name, Version: v.Version}
			if s.Failed[gv] == nil || len(v.Resources) == 0 {
				continue // nothing is known
			}
			delete(s.Failed, gv)
			for _, r := range v.Resources {
				t := Target{
					GroupVersionResource: gv.WithResource(r.Resource), Namespaced: r.Scope == apidiscoveryv2.ScopeNamespace, Verbs: r.Verbs,
				}
				if r.ResponseKind != nil {
					t.Kind = r.ResponseKind.Kind
				}
				s.Kinds[gv.WithKind(t.Kind)] = t
				if _, ok := s.Resources[t.GroupResource()]; !ok {
					s.Resources[t.GroupResource()] = t
				}
			}
		}
	}
	return nil
}

// Targets are the resources of a group version, without sub-resources.
func Targets(gv schema.GroupVersion, list *metav1.APIResourceList) []Target {
	var all []Target
	for _, r := range list.APIResources {
		if !strings.Contains(r.Name, "/") {
			all = append(all, Target{GroupVersionResource: gv.WithResource(r.Name), Kind: r.Kind, Namespaced: r.Namespaced, Verbs: r.Verbs})
		}
	}
	return all
}

// addAnnounced adds to the failed group versions those of APIServices that are not
// in discovery yet: the aggregator reads their documents, or fails to, a moment
// later, and what they hold must not be forgotten.
func (s *Served) addAnnounced(ctx context.Context, config *rest.Config, lists []*metav1.APIResourceList) error {
	var err error
	if s.Remote, err = remotes(ctx, config); err != nil {
		return err
	}
	for gv := range s.Remote {
		known := slices.ContainsFunc(lists, func(l *metav1.APIResourceList) bool { return l.GroupVersion == gv.String() })
		if _, failed := s.Failed[gv]; known || failed {
			continue
		}
		if s.Failed == nil {
			s.Failed = map[schema.GroupVersion]error{}
		}
		s.Failed[gv] = errors.New("its server has not been discovered yet")
	}
	return nil
}

// remotes are the group versions of other servers, and whether their APIService
// ever was Available: nothing was ever written through one that was not. A plane that
// starts may serve APIServices before its discovery lists them.
func remotes(ctx context.Context, config *rest.Config) (map[schema.GroupVersion]bool, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	found := map[schema.GroupVersion]bool{}
	all, err := client.Resource(APIServices()).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return found, nil // a plane without APIServices has none
	}
	if err != nil {
		return nil, fmt.Errorf("list APIServices: %w", err)
	}
	for i := range all.Items {
		if gv, remote := remoteOf(&all.Items[i]); remote {
			found[gv] = wasAvailable(&all.Items[i])
		}
	}
	return found, nil
}

// APIServices is the resource of them.
func APIServices() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
}

// GroupVersionOf returns the group version of an APIService.
func GroupVersionOf(service *unstructured.Unstructured) (gv schema.GroupVersion) {
	gv.Group, _, _ = unstructured.NestedString(service.Object, "spec", "group")
	gv.Version, _, _ = unstructured.NestedString(service.Object, "spec", "version")
	return gv
}

// remoteOf returns the group version of an APIService, and whether a server other
// than this plane serves it.
func remoteOf(service *unstructured.Unstructured) (gv schema.GroupVersion, remote bool) {
	elsewhere, _, _ := unstructured.NestedMap(service.Object, "spec", "service")
	return GroupVersionOf(service), elsewhere != nil
}

// wasAvailable tells whether an APIService is Available or ever was, which the
// aggregator keeps in a condition of its own.
func wasAvailable(service *unstructured.Unstructured) bool {
	return Available(service) || has(service, "WasAvailable")
}

// Available tells whether the server of an APIService can be used.
func Available(service *unstructured.Unstructured) bool { return has(service, "Available") }

// has tells whether a condition of an APIService is true.
func has(service *unstructured.Unstructured, condition string) bool {
	conditions, _, _ := unstructured.NestedSlice(service.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		fields, _ := c.(map[string]any)
		return fields["type"] == condition && fields["status"] == "True"
	})
}
