package controlplane

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	discoveryendpoint "k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
)

// Discovers tells whether discovery lists all the resources, of any group but the
// core group, so that clients find them.
func (p *Plane) Discovers(resources ...schema.GroupVersionResource) bool {
	return len(p.discoveryIndex.missing(resources)) == 0
}

// AwaitDiscovery returns when discovery lists all the resources (see
// [Plane.Discovers]).
func (p *Plane) AwaitDiscovery(ctx context.Context, resources []schema.GroupVersionResource) error {
	err := p.discoveryIndex.changed.Await(ctx, func() bool { return p.Discovers(resources...) })
	if err != nil {
		return fmt.Errorf("discovery does not list %v: %w", p.discoveryIndex.missing(resources), err)
	}
	return nil
}

// AwaitUnlisted returns when discovery lists none of the resources any more.
func (p *Plane) AwaitUnlisted(ctx context.Context, resources []schema.GroupVersionResource) error {
	err := p.discoveryIndex.changed.Await(ctx, func() bool { return len(p.discoveryIndex.missing(resources)) == len(resources) })
	if err != nil {
		return fmt.Errorf("discovery still lists some of %v: %w", resources, err)
	}
	return nil
}

// DiscoveryChanged returns a channel that is closed when discovery may have changed
// since the call. Call it before reading discovery, to miss no change.
func (p *Plane) DiscoveryChanged() <-chan struct{} { return p.discoveryIndex.changed.Next() }

// discoveryIndex is what the aggregated discovery document lists: a wait for a resource
// need not read the document at each change.
type discoveryIndex struct {
	changed signal.Change

	mu       sync.Mutex
	versions map[listedVersion]map[string]bool // the names of their resources
}

type listedVersion struct {
	metav1.GroupVersion
	source discoveryendpoint.Source
}

// missing returns the resources that no source lists.
func (l *discoveryIndex) missing(resources []schema.GroupVersionResource) []schema.GroupVersionResource {
	l.mu.Lock()
	defer l.mu.Unlock()
	has := map[schema.GroupVersionResource]bool{}
	for version, names := range l.versions {
		for _, r := range resources {
			if r.Group == version.Group && r.Version == version.Version && names[r.Resource] {
				has[r] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(resources), func(r schema.GroupVersionResource) bool { return has[r] })
}

func (l *discoveryIndex) change(f func()) {
	l.mu.Lock()
	f()
	l.mu.Unlock()
	l.changed.Announce()
}

func (l *discoveryIndex) remove(source discoveryendpoint.Source, gone func(metav1.GroupVersion) bool) {
	maps.DeleteFunc(l.versions, func(v listedVersion, _ map[string]bool) bool { return v.source == source && gone(v.GroupVersion) })
}

// discoveryManager is the manager of the aggregated discovery document, and notes what it
// lists. Nobody calls its SetGroups.
type discoveryManager struct {
	discoveryendpoint.ResourceManager
	source discoveryendpoint.Source
	listed *discoveryIndex
}

// WithSource implements discoveryendpoint.ResourceManager.
func (l discoveryManager) WithSource(source discoveryendpoint.Source) discoveryendpoint.ResourceManager {
	return discoveryManager{l.ResourceManager.WithSource(source), source, l.listed}
}

// AddGroupVersion implements discoveryendpoint.ResourceManager.
func (l discoveryManager) AddGroupVersion(group string, v apidiscoveryv2.APIVersionDiscovery) {
	l.ResourceManager.AddGroupVersion(group, v)
	names := map[string]bool{}
	for _, r := range v.Resources {
		names[r.Resource] = true
	}
	version := listedVersion{metav1.GroupVersion{Group: group, Version: v.Version}, l.source}
	l.listed.change(func() { l.listed.versions[version] = names })
}

// RemoveGroupVersion implements discoveryendpoint.ResourceManager.
func (l discoveryManager) RemoveGroupVersion(version metav1.GroupVersion) {
	l.ResourceManager.RemoveGroupVersion(version)
	l.listed.change(func() { l.listed.remove(l.source, func(v metav1.GroupVersion) bool { return v == version }) })
}

// RemoveGroup implements discoveryendpoint.ResourceManager.
func (l discoveryManager) RemoveGroup(group string) {
	l.ResourceManager.RemoveGroup(group)
	l.listed.change(func() { l.listed.remove(l.source, func(v metav1.GroupVersion) bool { return v.Group == group }) })
}

// groupList answers GET /apis in its unaggregated form with the groups served now, those
// that come and go among them.
func (p *Plane) groupList(w http.ResponseWriter, r *http.Request) {
	list := &metav1.APIGroupList{Groups: p.groupsFor(r, p.served())}
	responsewriters.WriteObjectNegotiated(
		unversionedCodecs(), negotiation.DefaultEndpointRestrictions, schema.GroupVersion{}, w, r, http.StatusOK, list, false)
}

// served are the group versions that the plane serves now.
func (p *Plane) served() []GroupVersion {
	all := p.GroupVersions()
	for _, d := range p.plan.dynamic {
		all = append(all, d.GroupVersions()...)
	}
	return all
}

// APIGroup returns a group as GET /apis/GROUP answers it, with the versions served now by
// whomever; nil when nobody serves the group.
func (p *Plane) APIGroup(r *http.Request, name string) *metav1.APIGroup {
	groups := p.groupsFor(r, slices.DeleteFunc(p.served(), func(gv GroupVersion) bool { return gv.Group != name }))
	if len(groups) == 0 {
		return nil
	}
	return &groups[0]
}

// groupsFor makes groups of group versions for who asks, who sees the addresses of other
// servers with the right to get the APIService that says where one is.
func (p *Plane) groupsFor(r *http.Request, served []GroupVersion) []metav1.APIGroup {
	groups := apiGroups(served)
	who, _ := request.UserFrom(r.Context())
	for _, gv := range served {
		if gv.Address == "" || who == nil {
			continue
		}
		decision, _, _ := p.base.Authorization.Authorizer.Authorize(r.Context(), authorizer.AttributesRecord{
			User: who, Verb: "get", APIGroup: "apiregistration.k8s.io", APIVersion: "v1", Resource: "apiservices",
			Name: gv.Version + "." + gv.Group, ResourceRequest: true,
		})
		at := metav1.ServerAddressByClientCIDR{ClientCIDR: "0.0.0.0/0", ServerAddress: gv.Address}
		i := slices.IndexFunc(groups, func(g metav1.APIGroup) bool { return g.Name == gv.Group })
		if decision == authorizer.DecisionAllow && i >= 0 && !slices.Contains(groups[i].ServerAddressByClientCIDRs, at) {
			groups[i].ServerAddressByClientCIDRs = append(groups[i].ServerAddressByClientCIDRs, at)
		}
	}
	return groups
}

// apiGroups makes groups of group versions: the highest version priority is
// preferred, and among equals the more stable and newer one, as in Kubernetes.
func apiGroups(served []GroupVersion) []metav1.APIGroup {
	slices.SortStableFunc(served, func(a, b GroupVersion) int {
		return cmp.Or(
			cmp.Compare(b.GroupPriority, a.GroupPriority), cmp.Compare(a.Group, b.Group),
			cmp.Compare(b.VersionPriority, a.VersionPriority), version.CompareKubeAwareVersionStrings(b.Version, a.Version))
	})
	var groups []metav1.APIGroup
	for _, gv := range served {
		if gv.Group == "" {
			continue // the core group is at /api
		}
		v := metav1.GroupVersionForDiscovery{GroupVersion: gv.Group + "/" + gv.Version, Version: gv.Version}
		i := slices.IndexFunc(groups, func(g metav1.APIGroup) bool { return g.Name == gv.Group })
		switch {
		case i < 0:
			groups = append(groups, metav1.APIGroup{Name: gv.Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
		case !slices.Contains(groups[i].Versions, v):
			groups[i].Versions = append(groups[i].Versions, v)
		}
	}
	return groups
}
