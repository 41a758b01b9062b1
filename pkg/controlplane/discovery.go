package controlplane

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	discoveryclient "k8s.io/client-go/discovery"
)

// AwaitDiscovery returns when discovery lists all the resources, as clients
// need to find them. It is signalled by changes of the discovery document.
func (p *Plane) AwaitDiscovery(ctx context.Context, resources []schema.GroupVersionResource) error {
	client, err := discoveryclient.NewDiscoveryClientForConfig(p.inside.config)
	if err != nil {
		return err
	}
	for {
		changed := p.discovered.Next()
		_, lists, _, err := client.GroupsAndMaybeResources()
		if err != nil {
			return fmt.Errorf("read discovery: %w", err)
		}
		missing := slices.DeleteFunc(slices.Clone(resources), func(r schema.GroupVersionResource) bool {
			list := lists[r.GroupVersion()]
			return list != nil && slices.ContainsFunc(list.APIResources, func(a metav1.APIResource) bool { return a.Name == r.Resource })
		})
		if len(missing) == 0 {
			p.announcer.announce()
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("discovery does not list %v: %w", missing, context.Cause(ctx))
		}
	}
}

// DiscoveryChanged is closed when what discovery lists may have changed since
// the call. Ask before reading what is not to be missed.
func (p *Plane) DiscoveryChanged() <-chan struct{} { return p.discovered.Next() }

// announcer keeps the unaggregated list of groups, GET /apis, complete: the
// groups server that answers it knows only its own groups. Where an aggregator
// stands above, that answers from its APIServices.
type announcer struct {
	plane   *Plane
	manager discovery.GroupManager

	mu        sync.Mutex
	announced map[string]bool
}

// follow announces the groups served now, and again after every change.
func (a *announcer) follow() error {
	for _, d := range a.plane.plan.dynamic {
		if err := d.Subscribe(a.announce); err != nil {
			return err
		}
	}
	a.announce()
	return nil
}

func (a *announcer) announce() {
	a.mu.Lock()
	defer a.mu.Unlock()
	served := a.plane.GroupVersions()
	for _, d := range a.plane.plan.dynamic {
		served = append(served, d.GroupVersions()...)
	}
	now := map[string]bool{}
	for _, group := range apiGroups(served) {
		now[group.Name] = true
		a.manager.AddGroup(group)
	}
	for name := range a.announced {
		if !now[name] {
			a.manager.RemoveGroup(name)
		}
	}
	a.announced = now
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
