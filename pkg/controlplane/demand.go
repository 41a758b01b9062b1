package controlplane

import (
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
)

// OnDemand has what serves a resource made when the resource is first used, in
// place of when the plane starts: the store, its watch cache, and the handlers of
// its group version. A plane that serves much of which little is used starts
// sooner and holds less. The first request for a resource reads all its
// objects: it is for planes that begin with few.
func (p *Plan) OnDemand() { p.onDemand = true }

// pending are the group versions of a plane whose handlers are not made yet.
type pending struct {
	some atomic.Bool // whether there are any

	mu       sync.Mutex
	installs map[string]func() error // by URL path, "apis/apps/v1"
	failed   map[string]error

	// prints are the fingerprints of all group versions that are served on demand,
	// by URL path, those that are installed as well. Nothing is added once the plane is made.
	prints map[string]string
}

func newPending() *pending {
	return &pending{installs: map[string]func() error{}, failed: map[string]error{}, prints: map[string]string{}}
}

func (p *pending) add(at string, install func() error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.installs[at] = install
	p.some.Store(true)
}

// wrap installs what a request is for before it is served.
func (p *pending) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.some.Load() {
			if err := p.install(r.URL.Path); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// install installs the group version a URL path is in, or all for the list of
// all paths.
func (p *pending) install(url string) error {
	if url == "/" || url == "/index.html" {
		return p.all()
	}
	url = strings.TrimPrefix(url, "/")
	segments := 3 // apis/apps/v1
	if strings.HasPrefix(url, "api/") {
		segments = 2 // api/v1
	}
	parts := strings.SplitN(url, "/", segments+1)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.one(strings.Join(parts[:min(len(parts), segments)], "/"))
}

// all installs everything.
func (p *pending) all() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for at := range p.installs {
		errs = append(errs, p.one(at))
	}
	return errors.Join(errs...)
}

// one is tried once: half of the handlers may be there when it failed.
func (p *pending) one(at string) error {
	install, ok := p.installs[at]
	if !ok {
		return p.failed[at]
	}
	delete(p.installs, at)
	if err := install(); err != nil {
		p.failed[at] = fmt.Errorf("install %s: %w", at, err)
	}
	p.some.Store(len(p.installs)+len(p.failed) > 0)
	return p.failed[at]
}

// serve has the handlers of a group version installed, and returns its discovery.
// What discovery says is known from the handlers: on demand they are installed
// now for the first plane of the process with such resources, and later for others.
func (i *installer) serve(
	g *planned, version string, storage map[string]map[string]rest.Storage,
) ([]apidiscoveryv2.APIResourceDiscovery, error) {
	if !i.plane.plan.onDemand {
		return i.installVersion(g, version, storage)
	}
	key := fingerprint(version, storage)
	at := strings.TrimPrefix(path.Join(g.api.root(), g.api.group, version), "/")
	i.plane.pending.prints[at] = key
	if known, ok := g.api.discovered.Load(key); ok {
		resources := known.(*apidiscoveryv2.APIVersionDiscovery).DeepCopy().Resources
		i.equate(schema.GroupVersion{Group: g.api.group, Version: version}, resources)
		i.plane.pending.add(at, func() error {
			_, err := i.installVersion(g, version, storage)
			return err
		})
		return resources, nil
	}
	resources, err := i.installVersion(g, version, storage)
	if err == nil {
		g.api.discovered.Store(key, (&apidiscoveryv2.APIVersionDiscovery{Resources: resources}).DeepCopy())
	}
	return resources, err
}

// fingerprint tells what an API serves of a version from other choices of its
// resources, and of versions that they are in.
func fingerprint(version string, storage map[string]map[string]rest.Storage) string {
	var all []string
	for v, paths := range storage {
		for at, s := range paths {
			all = append(all, fmt.Sprintf("%s/%s %T", v, at, s))
		}
	}
	slices.Sort(all)
	return version + "\n" + strings.Join(all, "\n")
}

// equate notes kinds as handlers do when they are installed: webhooks may ask for
// a resource as another group has it.
func (i *installer) equate(gv schema.GroupVersion, resources []apidiscoveryv2.APIResourceDiscovery) {
	register := func(resource, subresource string, kind *schema.GroupVersionKind) {
		if kind.Version == "" {
			kind.Group, kind.Version = gv.Group, gv.Version
		}
		i.config.EquivalentResourceRegistry.RegisterKindFor(gv.WithResource(resource), subresource, *kind)
	}
	for _, r := range resources {
		if k := r.ResponseKind; k != nil {
			register(r.Resource, "", &schema.GroupVersionKind{Group: k.Group, Version: k.Version, Kind: k.Kind})
		}
		for _, s := range r.Subresources {
			if k := s.ResponseKind; k != nil {
				register(r.Resource, s.Subresource, &schema.GroupVersionKind{Group: k.Group, Version: k.Version, Kind: k.Kind})
			}
		}
	}
}
