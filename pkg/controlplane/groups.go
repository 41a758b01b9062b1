package controlplane

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	restful "github.com/emicklei/go-restful/v3"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapi "k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	discoveryendpoint "k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	genericfeatures "k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	openapi "k8s.io/kube-openapi/pkg/common"

	"github.com/sailplane-dev/sailplane/pkg/internal/stack"
	"github.com/sailplane-dev/sailplane/pkg/internal/upstream"
)

// groups is the link that serves the plane's API groups. It installs them itself,
// because GenericAPIServer.InstallAPIGroups builds the OpenAPI models of every
// group at start: here all planes share them, built at the first write.
func groups(p *Plane, delegate genericapiserver.DelegationTarget) (*Link, error) {
	config := p.ServerConfig(unversionedCodecs())
	compressed := func(api http.Handler) http.Handler { return api }
	if utilfeature.DefaultFeatureGate.Enabled(genericfeatures.APIResponseCompression) {
		compressed = upstream.FastGzip
	}
	chain := config.BuildHandlerChainFunc
	config.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		return chain(compressed(api), c)
	}
	config.EnableDiscovery = false // groups that come and go are not in the server's own list
	server, err := config.Complete().New("groups", delegate)
	if err != nil {
		return nil, err
	}
	all := discoveryendpoint.WrapAggregatedDiscoveryToHandler(http.HandlerFunc(p.groupList), server.AggregatedDiscoveryGroupManager, nil)
	server.Handler.GoRestfulContainer.Add(all.GenerateWebService("/apis", metav1.APIGroupList{}))
	p.kinds.EquivalentResourceRegistry = config.EquivalentResourceRegistry // since Complete
	server.Handler.Director = compressed(server.Handler.Director)          // for a server above
	server.Handler.GoRestfulContainer.Router(p.routes)
	for _, g := range p.plan.groups() {
		if err := (&installer{plane: p, server: server, config: config}).install(g); err != nil {
			server.Destroy()
			return nil, fmt.Errorf("group %q: %w", g.api.group, err)
		}
	}
	p.groupsServer = server
	return &Link{
		Server: server, GroupVersions: p.plan.groupVersions(),
		Definitions: p.plan.definitions, Schemes: p.plan.schemes,
	}, nil
}

// planned is one API group with everything the parts put into it.
type planned struct {
	api       *API
	resources []Resource
}

// groups merges what the parts serve, in the order of their first mention. It
// is called when the plan is complete.
func (p *Plan) groups() []*planned {
	if p.grouped != nil {
		return p.grouped
	}
	byName := map[string]*planned{}
	joined := map[*API]bool{}
	for _, s := range p.served {
		g := byName[s.api.group]
		switch {
		case g == nil:
			g = &planned{api: s.api}
			byName[s.api.group] = g
			p.grouped = append(p.grouped, g)
		case !joined[s.api]:
			g.api = g.api.join(s.api)
		}
		joined[s.api] = true
		g.resources = append(g.resources, s.resources...)
	}
	return p.grouped
}

// find returns the first resource of a group for which a condition holds, and
// whether there is one.
func (p *Plan) find(group string, holds func(Resource) bool) (r Resource, found bool) {
	for _, s := range p.served {
		if s.api == nil || s.api.group != group {
			continue
		}
		if i := slices.IndexFunc(s.resources, holds); i >= 0 {
			return s.resources[i], true
		}
	}
	return r, false
}

// isView tells whether another resource stores the objects of this one.
func (p *Plan) isView(resource schema.GroupResource) bool {
	return p.has(resource.Group, func(r Resource) bool { return r.View && r.Name == resource.Resource })
}

// has tells whether a condition holds for a resource of a group.
func (p *Plan) has(group string, holds func(Resource) bool) bool {
	_, found := p.find(group, holds)
	return found
}

// Serves tells whether a part of the plane serves a resource of the kind. Parts ask when
// the plane runs, not before: later parts may serve it.
func (p *Plan) Serves(kind gvk) bool {
	return p.has(kind.Group, func(r Resource) bool { return r.Kind == kind.Kind && slices.Contains(r.Versions, kind.Version) })
}

// groupVersions ranks the plan's group versions as kube-apiserver ranks its own:
// the core group first, then the others in the order of the parts, in each the
// preferred version first. CRDs come after them (1000, 100).
func (p *Plan) groupVersions() []GroupVersion {
	var all []GroupVersion
	for i, g := range p.groups() {
		group := int32(firstGroupPriority - 100*i)
		if g.api.group == "" {
			group = coreGroupPriority
		}
		for j, v := range g.versions() {
			all = append(all, GroupVersion{
				Group: g.api.group, Version: v,
				GroupPriority: max(group, lastGroupPriority), VersionPriority: int32(max(100-j, 1)),
			})
		}
	}
	return all
}

const (
	coreGroupPriority  = 18000
	firstGroupPriority = 17800
	lastGroupPriority  = 1100
)

// definitions merges the OpenAPI definitions of the plan's APIs.
func (p *Plan) definitions() (openapi.GetOpenAPIDefinitions, error) {
	var all []openapi.GetOpenAPIDefinitions
	for _, g := range p.groups() {
		d, err := g.api.definitions()
		if err != nil {
			return nil, fmt.Errorf("group %q: openapi definitions: %w", g.api.group, err)
		}
		all = append(all, d)
	}
	return func(ref openapi.ReferenceCallback) map[string]openapi.OpenAPIDefinition {
		merged := map[string]openapi.OpenAPIDefinition{}
		for _, d := range all {
			maps.Copy(merged, d(ref))
		}
		return merged
	}, nil
}

func (p *Plan) schemes() ([]*runtime.Scheme, error) {
	var all []*runtime.Scheme
	for _, g := range p.groups() {
		s, err := g.api.scheme()
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// versions are the versions of the group that serve something, in order.
func (g *planned) versions() []string {
	return slices.DeleteFunc(slices.Clone(g.api.versions), func(v string) bool {
		return !slices.ContainsFunc(g.resources, func(r Resource) bool { return slices.Contains(r.Versions, v) })
	})
}

// installer puts one API group into a server.
type installer struct {
	plane  *Plane
	server *genericapiserver.GenericAPIServer
	config *genericapiserver.RecommendedConfig
}

func (i *installer) install(g *planned) error {
	storage, err := i.storage(g)
	if err != nil {
		return err
	}
	manager := i.server.AggregatedDiscoveryGroupManager
	if g.api.group == "" {
		manager = i.server.AggregatedLegacyDiscoveryGroupManager
	}
	for _, version := range g.versions() {
		resources, err := i.serve(g, version, storage)
		if err != nil {
			return fmt.Errorf("version %s: %w", version, err)
		}
		manager.AddGroupVersion(g.api.group, apidiscoveryv2.APIVersionDiscovery{
			Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent, Version: version, Resources: resources,
		})
	}
	i.announce(g)
	return nil
}

// storage builds every resource of the group: version, path, storage.
func (i *installer) storage(g *planned) (ResourceStorage, error) {
	codecs, err := g.api.codecs()
	if err != nil {
		return nil, err
	}
	config := BuildConfig{
		Scheme: codecs.scheme, Options: i.plane.RESTOptions(codecs.stored, codecs.storedAs),
		Authenticator: i.config.Authentication.Authenticator, Authorizer: i.config.Authorization.Authorizer,
		Audiences: i.plane.plan.audiences, Rules: i.plane.rules(), Client: i.plane.Config(), Storage: i.plane.storageOf,
		Work:    func(w Work) { i.plane.work = append(i.plane.work, named[Work]{cmp.Or(g.api.group, "core"), w.Name, w}) },
		sources: &i.plane.sources,
	}
	all := ResourceStorage{}
	for _, r := range g.resources {
		built, err := r.Build(config)
		if err != nil {
			return nil, fmt.Errorf("resource %q: %w", r.Name, err)
		}
		for version, paths := range built {
			if all[version] == nil {
				all[version] = map[string]rest.Storage{}
			}
			maps.Copy(all[version], paths)
			for _, s := range paths {
				i.server.RegisterDestroyFunc(s.Destroy)
			}
			i.plane.keep(g.api.group, paths)
		}
	}
	return all, nil
}

// handlers makes the routes of some storage of a group version, and returns them and
// their discovery.
func (i *installer) handlers(
	g *planned, version string, storage ResourceStorage,
) (*restful.WebService, []apidiscoveryv2.APIResourceDiscovery, error) {
	codecs, err := g.api.codecs()
	if err != nil {
		return nil, nil, err
	}
	scheme := codecs.scheme
	served := map[string][]string{}
	for v, paths := range storage {
		for path := range paths {
			served[path] = append(served[path], schema.GroupVersion{Group: g.api.group, Version: v}.String())
		}
	}
	completed := i.config.Config
	gv := &genericapi.APIGroupVersion{
		GroupVersion: schema.GroupVersion{Group: g.api.group, Version: version},
		Root:         g.api.root(), Storage: storage[version], AllServedVersionsByResource: served,
		OptionsExternalVersion: &schema.GroupVersion{Version: "v1"},
		ParameterCodec:         runtime.NewParameterCodec(scheme), Serializer: codecs.wire,
		Creater: roomy{scheme}, Convertor: scheme, ConvertabilityChecker: scheme, Defaulter: scheme, Typer: scheme,
		UnsafeConvertor: runtime.UnsafeObjectConvertor(scheme), Namer: runtime.Namer(meta.NewAccessor()),
		TypeConverter: g.api.typeConverter(), EquivalentResourceRegistry: fixedKinds{&i.plane.kinds},
		Admit: completed.AdmissionControl, Authorizer: completed.Authorization.Authorizer,
		MinRequestTimeout:   time.Duration(completed.MinRequestTimeout) * time.Second,
		MaxRequestBodyBytes: completed.MaxRequestBodyBytes,
	}
	container := restful.NewContainer()
	resources, _, err := gv.InstallREST(container)
	if err != nil {
		return nil, nil, err
	}
	return container.RegisteredWebServices()[0], resources, nil
}

// roomy makes objects. What a create stores is made in a goroutine of its own, and upstream
// asks for an empty object at its beginning: it gets its stack there.
type roomy struct{ runtime.ObjectCreater }

// New implements runtime.ObjectCreater.
func (r roomy) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	stack.Reserve()
	return r.ObjectCreater.New(kind)
}

// announce adds the group's own document to unaggregated discovery.
func (i *installer) announce(g *planned) {
	container := i.server.Handler.GoRestfulContainer
	if g.api.group == "" {
		root := discovery.NewLegacyRootAPIHandler(i.config.DiscoveryAddresses, i.server.Serializer, "/api")
		wrapped := discoveryendpoint.WrapAggregatedDiscoveryToHandler(root,
			i.server.AggregatedLegacyDiscoveryGroupManager, i.server.AggregatedLegacyDiscoveryGroupManager)
		container.Add(wrapped.GenerateWebService("/api", metav1.APIVersions{}))
		return
	}
	// It is the same in all planes that serve the same versions.
	key := strings.Join(g.versions(), ",")
	known, ok := g.api.announced.Load(key)
	if !ok {
		var served []GroupVersion
		for n, v := range g.versions() {
			served = append(served, GroupVersion{Group: g.api.group, Version: v, VersionPriority: int32(-n)})
		}
		known, _ = g.api.announced.LoadOrStore(key,
			discovery.NewAPIGroupHandler(unversionedCodecs(), apiGroups(served)[0]).WebService())
	}
	container.Add(known.(*restful.WebService))
}
