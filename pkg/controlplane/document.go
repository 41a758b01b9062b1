package controlplane

import (
	"fmt"
	"sync"
	"weak"

	restful "github.com/emicklei/go-restful/v3"

	"github.com/sailplane-dev/sailplane/pkg/internal/openapi/documents"
	"github.com/sailplane-dev/sailplane/pkg/openapi"
)

// caches are the document caches in use, by the APIs whose documents they keep.
// Servers that serve the same API values share the bytes; a cache is freed with the
// last of them.
type caches struct {
	mu    sync.Mutex
	inUse map[string]weak.Pointer[documents.Cache]
}

var documentCaches = sync.OnceValue(func() *caches { return &caches{inUse: map[string]weak.Pointer[documents.Cache]{}} })

// of returns the cache of the plan's APIs.
func (c *caches) of(p *Plan) *documents.Cache {
	key := ""
	for _, g := range p.groups() {
		key += g.api.id + " "
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if cache := c.inUse[key].Value(); cache != nil {
		return cache
	}
	for key, kept := range c.inUse {
		if kept.Value() == nil {
			delete(c.inUse, key)
		}
	}
	cache := &documents.Cache{}
	c.inUse[key] = weak.Make(cache)
	return cache
}

// installOpenAPI serves /openapi/v2 and /openapi/v3 of the whole chain from the top
// server. Documents are built when a client first asks.
func (p *Plane) installOpenAPI() error {
	var sources []openapi.Source
	for _, l := range p.links {
		if l.Definitions == nil {
			continue
		}
		config := documents.StaticConfig{
			Key: fmt.Sprint(l.GroupVersions), Title: "Kubernetes", Version: kubernetesVersion,
			WebServices: func() []*restful.WebService { return l.Server.Handler.GoRestfulContainer.RegisteredWebServices() },
			Definitions: l.Definitions, Schemes: l.Schemes,
		}
		if l.Server == p.groupsServer {
			services := config.WebServices
			config.WebServices = func() []*restful.WebService { return p.routes.whole(services()) }
			config.Later, config.Make = p.routes.prints, p.routes.install
		}
		sources = append(sources, documents.Static(config))
	}
	for _, d := range p.plan.dynamic {
		sources = append(sources, d.Documents())
	}
	service := documents.NewService(documentCaches().of(p.plan), func() []openapi.Source { return sources })
	service.Install(p.top.Handler.NonGoRestfulMux)
	return nil
}
