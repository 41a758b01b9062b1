package controlplane

import (
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"

	restful "github.com/emicklei/go-restful/v3"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// lazyRoutes are the group versions of a plane whose routes are made when they are
// used: a further plane with the standard parts has 2.0 MiB of heap in place of 2.6
// (bench -only planes), and a server with all stable types of Kubernetes has 10 MiB
// less. No version is added once the plane is made.
type lazyRoutes struct {
	versions map[string]*versionRoutes // by URL path, "apis/apps/v1"
	// prints are the fingerprints of the versions, by URL path.
	prints map[string]string
}

func newLazyRoutes() *lazyRoutes {
	return &lazyRoutes{versions: map[string]*versionRoutes{}, prints: map[string]string{}}
}

// versionRoutes are the routes of one group version, made resource by resource:
// most planes use few resources of a version.
type versionRoutes struct {
	// announce puts the root of the version into the server, without any route.
	announce func()
	root     *restful.WebService
	// make makes the routes of some of the storage.
	make    func(storage ResourceStorage) (*restful.WebService, error)
	storage ResourceStorage
	version string

	mu   sync.Mutex
	made map[string]*restful.WebService // by resource; of all: ""
}

// of returns the routes of a resource, or of all for "", and makes them if needed.
// A resource that is not served has none.
func (r *versionRoutes) of(resource string) (*restful.WebService, error) {
	if resource != "" && r.storage[r.version][resource] == nil {
		return nil, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if ws := r.made[resource]; ws != nil {
		return ws, nil
	}
	storage := r.storage
	if resource != "" {
		storage = only(storage, resource)
	}
	ws, err := r.make(storage)
	if err == nil {
		r.made[resource] = ws
	}
	return ws, err
}

// whole returns the routes of all resources if they are made.
func (r *versionRoutes) whole() *restful.WebService {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.made[""]
}

// only returns the storage of one resource and its sub-resources.
func only(storage ResourceStorage, resource string) ResourceStorage {
	some := ResourceStorage{}
	for version, paths := range storage {
		some[version] = maps.Clone(paths)
		maps.DeleteFunc(some[version], func(at string, _ rest.Storage) bool {
			return at != resource && !strings.HasPrefix(at, resource+"/")
		})
	}
	return some
}

// wrap announces the group version of a request before the request is served.
func (p *lazyRoutes) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if url := r.URL.Path; url == "/" || url == "/index.html" { // the list of all paths
			for _, v := range p.versions {
				v.announce()
			}
		} else if v := p.at(url); v != nil {
			v.announce()
		}
		next.ServeHTTP(w, r)
	})
}

// at returns the group version that a URL path is in.
func (p *lazyRoutes) at(url string) *versionRoutes {
	if len(p.versions) == 0 {
		return nil
	}
	url = strings.TrimPrefix(url, "/")
	segments := 3 // apis/apps/v1
	if strings.HasPrefix(url, "api/") {
		segments = 2 // api/v1
	}
	for i := range len(url) {
		if url[i] != '/' {
			continue
		}
		if segments--; segments == 0 {
			return p.versions[url[:i]]
		}
	}
	return p.versions[url]
}

// install makes all routes of the group version at a path.
func (p *lazyRoutes) install(at string) error {
	v := p.at(at)
	if v == nil {
		return nil
	}
	_, err := v.of("")
	return err
}

// whole are the web services of a server, each with all of its routes. Those
// of versions that are not installed are left out.
func (p *lazyRoutes) whole(services []*restful.WebService) []*restful.WebService {
	var all []*restful.WebService
	for _, ws := range services {
		if v := p.at(ws.RootPath()); v == nil || v.root != ws {
			all = append(all, ws)
		}
	}
	for _, v := range p.versions {
		if ws := v.whole(); ws != nil {
			all = append(all, ws)
		}
	}
	return all
}

// SelectRoute implements restful.RouteSelector: it finds a route among those of
// the resource that a request is for.
func (p *lazyRoutes) SelectRoute(services []*restful.WebService, r *http.Request) (*restful.WebService, *restful.Route, error) {
	if v := p.at(r.URL.Path); v != nil {
		resource := ""
		if info, ok := request.RequestInfoFrom(r.Context()); ok && info.IsResourceRequest {
			resource = info.Resource
		}
		ws, err := v.of(resource)
		if err != nil {
			return nil, nil, restful.NewError(http.StatusInternalServerError, err.Error())
		}
		if ws != nil {
			services = []*restful.WebService{ws}
		}
	}
	return restful.CurlyRouter{}.SelectRoute(services, r)
}

// serve serves a group version on demand, and returns its discovery. Discovery is
// read from handlers: the first plane of the process with such resources makes all of
// them once, and keeps none.
func (i *installer) serve(
	g *planned, version string, storage ResourceStorage,
) ([]apidiscoveryv2.APIResourceDiscovery, error) {
	key := fingerprint(version, storage)
	known, ok := g.api.discovered.Load(key)
	if !ok {
		_, resources, err := i.handlers(g, version, storage)
		if err != nil {
			return nil, err
		}
		known, _ = g.api.discovered.LoadOrStore(key, resources)
	}
	at := strings.TrimPrefix(path.Join(g.api.root(), g.api.group, version), "/")
	resources := known.([]apidiscoveryv2.APIResourceDiscovery) // which nobody changes
	gv := schema.GroupVersion{Group: g.api.group, Version: version}
	i.plane.kinds.later = append(i.plane.kinds.later, func() { i.plane.kinds.register(gv, resources) })
	i.plane.routes.versions[at] = i.routes(g, version, storage)
	i.plane.routes.prints[at] = key
	return resources, nil
}

// routes returns the routes of a group version, none of which is made yet.
func (i *installer) routes(g *planned, version string, storage ResourceStorage) *versionRoutes {
	root := new(restful.WebService)
	r := &versionRoutes{root: root, storage: storage, version: version, made: map[string]*restful.WebService{}}
	r.announce = sync.OnceFunc(func() {
		i.server.Handler.GoRestfulContainer.Add(root.Path(path.Join(g.api.root(), g.api.group, version)))
	})
	r.make = func(storage ResourceStorage) (*restful.WebService, error) {
		ws, _, err := i.handlers(g, version, storage)
		if err != nil {
			return nil, fmt.Errorf("install %s: %w", root.RootPath(), err)
		}
		g.api.routes.Share(fingerprint(version, storage), ws.Routes())
		return ws, nil
	}
	return r
}

// fingerprint tells the resources that an API serves in a version from any other
// choice of resources and versions.
func fingerprint(version string, storage ResourceStorage) string {
	var all []string
	for v, paths := range storage {
		for at, s := range paths {
			all = append(all, fmt.Sprintf("%s/%s %T", v, at, s))
		}
	}
	slices.Sort(all)
	return version + "\n" + strings.Join(all, "\n")
}

// lazyKinds is the registry of a plane that webhooks ask for a resource as another
// group has it. The kinds whose handlers are not installed yet are registered when
// it is asked first.
type lazyKinds struct {
	runtime.EquivalentResourceRegistry
	later []func()
	once  sync.Once
}

// EquivalentResourcesFor implements runtime.EquivalentResourceMapper.
func (k *lazyKinds) EquivalentResourcesFor(resource schema.GroupVersionResource, subresource string) []schema.GroupVersionResource {
	k.once.Do(k.registerAll)
	return k.EquivalentResourceRegistry.EquivalentResourcesFor(resource, subresource)
}

// KindFor implements runtime.EquivalentResourceMapper.
func (k *lazyKinds) KindFor(resource schema.GroupVersionResource, subresource string) schema.GroupVersionKind {
	k.once.Do(k.registerAll)
	return k.EquivalentResourceRegistry.KindFor(resource, subresource)
}

func (k *lazyKinds) registerAll() {
	for _, register := range k.later {
		register()
	}
}

// register registers kinds as the installation of handlers does.
func (k *lazyKinds) register(gv schema.GroupVersion, resources []apidiscoveryv2.APIResourceDiscovery) {
	register := func(resource, subresource string, kind *schema.GroupVersionKind) {
		if kind.Version == "" {
			kind.Group, kind.Version = gv.Group, gv.Version
		}
		k.RegisterKindFor(gv.WithResource(resource), subresource, *kind)
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

// fixedKinds is a registry that knows all kinds already: it counts the registrations.
type fixedKinds struct {
	runtime.EquivalentResourceRegistry
}

func (fixedKinds) RegisterKindFor(schema.GroupVersionResource, string, schema.GroupVersionKind) {}
