// Package aggregator serves APIServices and aggregated discovery over
// everything a plane serves.
//
// It is upstream's kube-aggregator above the plane's groups. Every group
// version the plane serves itself is registered as a local APIService, those of
// CRDs as they come and go.
package aggregator

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorserver "k8s.io/kube-aggregator/pkg/apiserver"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	generatedopenapi "k8s.io/kube-aggregator/pkg/generated/openapi"
	openapicommon "k8s.io/kube-openapi/pkg/common"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/openapi/documents"
	"github.com/sailplane-dev/sailplane/pkg/internal/upstream"
)

// APIServices serves the API group apiregistration.k8s.io. The Services that remote
// APIServices name are found by the parts of package services. What these say of a Service
// that is not found is in the log and in condition Available; clients get a 503.
type APIServices struct {
	// Available checks the remote APIServices and keeps their Available
	// condition, from the start of the plane until its context ends. Requests go
	// to a remote one when its condition is true. Nil: their servers are asked for
	// discovery every few seconds, as kube-aggregator does, if a part finds
	// Services; otherwise remote APIServices stay as they are. The status keeps
	// whether one was available, see [WasAvailable].
	Available controlplane.WorkFunc
	// Deny are networks that the servers of APIServices may not be in, checked on
	// connecting to one. Those at which clouds have services for their machines, and
	// other link-local ones (admit.LinkLocal), are always in it. It is not for the
	// addresses of services.Addresses.
	Deny []netip.Prefix
	// Allow are networks in denied ones that servers may be in. Empty: none.
	Allow []netip.Prefix
}

// PartName implements the name errors use.
func (APIServices) PartName() string { return "aggregator.APIServices" }

// Install declares the aggregator above the groups.
func (a APIServices) Install(p *controlplane.Plan) error {
	connections := newConnections(a.Deny, a.Allow, p)
	if err := connections.Check(); err != nil {
		return err
	}
	r, check := newRegistration(), newAvailability(connections)
	g := &guard{services: check}
	p.Above("aggregator", func(plane *controlplane.Plane, delegate genericapiserver.DelegationTarget) (*controlplane.Link, error) {
		g.plane = plane
		return link(plane, delegate, r, check)
	})
	p.Work(controlplane.Work{Name: "register APIServices", Run: r.run})
	p.Wrap(controlplane.Innermost, "APIServices on demand", r.wrap)
	p.Wrap(controlplane.Innermost, "what remote APIServices get", g.wrap)
	p.Admit("remember available APIServices", rememberAvailable{})
	available := a.Available
	if available == nil {
		available = check.run
	}
	p.Work(controlplane.Work{Name: "check remote APIServices", Run: available})
	return nil
}

// models is the OpenAPI config of APIServices: the same for all planes.
var models = sync.OnceValue(func() *openapicommon.OpenAPIV3Config {
	return documents.ShareConfig(genericapiserver.DefaultOpenAPIV3Config(generatedopenapi.GetOpenAPIDefinitions,
		apiopenapi.NewDefinitionNamer(aggregatorscheme.Scheme)))
})

// routes are those that serve APIServices: the same in all planes.
var routes = sync.OnceValue(func() *upstream.Routes { return &upstream.Routes{} })

func link(
	p *controlplane.Plane, delegate genericapiserver.DelegationTarget, r *registration, check *availability,
) (*controlplane.Link, error) {
	codec, encode, err := serverstorage.NewStorageCodec(serverstorage.StorageCodecConfig{
		StorageMediaType:  runtime.ContentTypeJSON,
		StorageSerializer: aggregatorscheme.Codecs,
		StorageVersion:    apiregistrationv1.SchemeGroupVersion,
		MemoryVersion:     schema.GroupVersion{Group: apiregistrationv1.GroupName, Version: runtime.APIVersionInternal},
	})
	if err != nil {
		return nil, err
	}
	generic := p.ServerConfig(aggregatorscheme.Codecs)
	generic.LoopbackClientConfig = asAggregator(p.ProtobufConfig())
	generic.RESTOptionsGetter = p.RESTOptions(codec, encode)
	generic.MergedResourceConfig = aggregatorserver.DefaultAPIResourceConfigSource()
	generic.OpenAPIV3Config = documents.CloneConfig(models())
	// link.Start starts the informers and waits for them, so that the hooks'
	// controllers find them synced.
	generic.DisabledPostStartHooks.Insert("start-kube-aggregator-informers")
	config := aggregatorserver.Config{
		GenericConfig: generic,
		ExtraConfig: aggregatorserver.ExtraConfig{
			ServiceResolver: check.services,
			ProxyTransport:  &http.Transport{DialContext: check.services.DialContext},
			// The stock check needs Services and EndpointSlices in the API: see availability.
			DisableRemoteAvailableConditionController: true,
		},
	}
	completed := config.Complete()
	server, err := completed.NewWithDelegate(delegate)
	if err != nil {
		return nil, err
	}
	documents.ReleaseConfig(generic.OpenAPIV3Config)
	routes().ShareAll(server.GenericAPIServer.Handler.GoRestfulContainer)
	r.informers = server.APIRegistrationInformers
	if err := check.watch(r.informers.Apiregistration().V1().APIServices()); err != nil {
		return nil, fmt.Errorf("watch APIServices: %w", err)
	}
	return &controlplane.Link{
		Server: server.GenericAPIServer,
		Start: func(ctx, life context.Context) error {
			server.APIRegistrationInformers.StartWithContext(life)
			if res := server.APIRegistrationInformers.WaitForCacheSyncWithContext(ctx); res.Err != nil {
				return fmt.Errorf("read the APIServices: %w", res.AsError())
			}
			return nil
		},
		Stop: func() {
			server.APIRegistrationInformers.Shutdown()
			check.services.CloseAll()
		},
		Definitions: func() (openapicommon.GetOpenAPIDefinitions, error) {
			return generatedopenapi.GetOpenAPIDefinitions, nil
		},
		Schemes: func() ([]*runtime.Scheme, error) { return []*runtime.Scheme{aggregatorscheme.Scheme}, nil },
		GroupVersions: []controlplane.GroupVersion{{
			Group: apiregistrationv1.GroupName, Version: apiregistrationv1.SchemeGroupVersion.Version,
			GroupPriority: 18000, VersionPriority: 18,
		}},
	}, nil
}
