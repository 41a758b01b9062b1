package controlplane

import (
	"fmt"

	restful "github.com/emicklei/go-restful/v3"

	"github.com/sailplane-dev/sailplane/pkg/internal/openapi"
)

// installOpenAPI serves /openapi/v2 and /openapi/v3 of the whole chain from the
// top server. Nothing is built before somebody asks.
func (p *Plane) installOpenAPI() error {
	var sources []openapi.Source
	for _, l := range p.links {
		if l.Definitions == nil {
			continue
		}
		sources = append(sources, openapi.Static(openapi.StaticConfig{
			Key: fmt.Sprint(l.GroupVersions), Title: "Kubernetes", Version: kubernetesVersion,
			WebServices: func() []*restful.WebService { return l.Server.Handler.GoRestfulContainer.RegisteredWebServices() },
			Definitions: l.Definitions, Schemes: l.Schemes,
		}))
	}
	for _, d := range p.plan.dynamic {
		sources = append(sources, d.Documents())
	}
	service := openapi.NewService(p.shared.documents, func() []openapi.Source { return sources })
	service.Install(p.top.Handler.NonGoRestfulMux)
	return nil
}
