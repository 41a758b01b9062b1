// Package crd serves CustomResourceDefinitions and the resources they define,
// with everything Kubernetes offers for them: structural schemas, CEL rules,
// defaulting, pruning, several versions, conversion webhooks by URL, by Service or
// by a function of the program, status and scale sub-resources, selectable fields
// and printer columns.
//
// It is upstream's apiextensions server below the plane's groups. A CRD with the
// condition Established is usable at once, which upstream does not promise.
// Upstream waits three seconds between a CRD and its first object, for other
// replicas; this package does not: see establish.go here, and lazy.go in
// pkg/internal/store.
package crd

import (
	"context"
	"io/fs"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/dialing"
	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
	"github.com/sailplane-dev/sailplane/pkg/openapi"
)

// Definitions serves CustomResourceDefinitions.
type Definitions struct {
	// FS holds CRDs that are applied at start, in every *.yaml, *.yml and
	// *.json file of it: the server is ready when they are established. Objects
	// of other APIs are left out, which is logged. Nil: none; CRDs come through
	// the API.
	FS fs.FS
	// Deny are networks that conversion webhooks may not be in. It is checked on
	// connecting to a webhook, by the address its name resolves to. Objects of a
	// denied webhook cannot be read or written in another version than the stored
	// one. admit.LinkLocal is always in it, admit.PrivateNetworks is a longer list.
	// With a list, webhooks are reached without the proxy of the environment. It is not
	// for the addresses of services.Addresses.
	Deny []netip.Prefix
	// Allow are networks in denied ones that webhooks may be in. Empty: none.
	Allow []netip.Prefix
	// Limits bound what CRDs cost that come through the API.
	Limits Limits
}

// PartName implements the name errors use.
func (Definitions) PartName() string { return "crds" }

// Install declares the server of custom resources and the CRDs to apply.
func (d Definitions) Install(p *controlplane.Plan) error {
	g := &groups{
		webhooks: dialing.New(d.Deny, d.Allow, p), serving: newServing(),
		becoming: semaphore.NewWeighted(schemasAtOnce), naming: newNaming(),
	}
	if err := g.webhooks.Check(); err != nil {
		return err
	}
	limits, err := d.Limits.withDefaults()
	if err != nil {
		return err
	}
	p.Below("custom resources", g.link)
	p.Dynamic(g)
	p.Admit("CRDs are established when they are usable", establishment{g})
	p.Admit("CRDs are not too large", &limiting{Limits: limits, groups: g})
	p.Work(controlplane.Work{Name: "establish CRDs", Run: g.establish})
	p.Wrap(controlplane.Innermost, "no protobuf for custom resources", g.withoutProtobuf)
	p.Wrap(controlplane.Innermost, "CRDs that other servers wrote", g.current)
	if d.FS != nil {
		p.Work(controlplane.Work{Name: "given CRDs", Start: func(ctx context.Context, plane *controlplane.Plane) error {
			return d.apply(ctx, plane, g)
		}})
	}
	return nil
}

// apply applies the given CRDs and waits until they are usable.
func (d Definitions) apply(ctx context.Context, plane *controlplane.Plane, g *groups) error {
	definitions, others, err := load(d.FS)
	if err != nil {
		return err
	}
	for _, other := range others {
		klog.FromContext(ctx).Info("Skipped an object that is not a CustomResourceDefinition", "object", other)
	}
	generations, err := apply(ctx, plane.Config(), definitions)
	if err != nil {
		return err
	}
	usable, err := g.awaitAll(ctx, generations)
	if err != nil {
		return err
	}
	return plane.AwaitDiscovery(ctx, usable)
}

// served are the resources of a CRD, in each version that is served.
func served(crd *apiextensionsv1.CustomResourceDefinition) []schema.GroupVersionResource {
	var all []schema.GroupVersionResource
	for _, v := range crd.Spec.Versions {
		if v.Served {
			all = append(all, schema.GroupVersionResource{Group: crd.Spec.Group, Version: v.Name, Resource: crd.Spec.Names.Plural})
		}
	}
	return all
}

// groups are the group versions of the established CRDs of one plane.
type groups struct {
	// webhooks connects to conversion webhooks.
	webhooks dialing.Dialer
	plane    *controlplane.Plane
	stored   definitions
	serving  *serving
	informer cache.SharedIndexInformer
	lister   listers.CustomResourceDefinitionLister
	becoming *semaphore.Weighted // schemas of the CRDs that become usable
	naming   *naming
	known    atomic.Int64 // this server has served all CRDs of the storage up to this revision

	changed     signal.Change
	mu          sync.Mutex
	subscribers []func()
}

// The rank of CRD groups in discovery, as in kube-apiserver: behind its own.
const (
	groupPriority   = 1000
	versionPriority = 100
)

// GroupVersions implements controlplane.DynamicGroups.
func (g *groups) GroupVersions() []controlplane.GroupVersion {
	crds, err := g.lister.List(labels.Everything())
	if err != nil {
		return nil // a lister over a synced informer does not fail
	}
	seen := map[controlplane.GroupVersion]bool{}
	var all []controlplane.GroupVersion
	for _, crd := range crds {
		if !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
			continue
		}
		for _, v := range crd.Spec.Versions {
			gv := controlplane.GroupVersion{
				Group: crd.Spec.Group, Version: v.Name, GroupPriority: groupPriority, VersionPriority: versionPriority,
			}
			if v.Served && !seen[gv] {
				seen[gv] = true
				all = append(all, gv)
			}
		}
	}
	return all
}

// Subscribe implements controlplane.DynamicGroups.
func (g *groups) Subscribe(f func()) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.subscribers = append(g.subscribers, f)
	return nil
}

// notify calls the subscribers on a change. An informer's handler for each would
// take 16 KiB.
func (g *groups) notify() {
	g.changed.Announce()
	g.mu.Lock()
	all := slices.Clip(g.subscribers)
	g.mu.Unlock()
	for _, f := range all {
		f()
	}
}

// Documents implements controlplane.DynamicGroups.
func (g *groups) Documents() openapi.Source { return newOpenAPISource(g.lister) }
