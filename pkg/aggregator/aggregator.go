// Package aggregator serves APIServices and aggregated discovery over
// everything a plane serves.
//
// It keeps upstream's APIService API and its storage. Every group version the plane serves
// itself is registered as a local APIService, those of CRDs as they come and go. What it does
// for the others is its own: where their servers are (target), whether they can be used
// (check), what they serve (discover, documents), and how requests get there (route, proxy).
package aggregator

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	discoveryendpoint "k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	apiopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorserver "k8s.io/kube-aggregator/pkg/apiserver"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/kube-aggregator/pkg/client/informers/externalversions"
	generatedopenapi "k8s.io/kube-aggregator/pkg/generated/openapi"
	apiservicerest "k8s.io/kube-aggregator/pkg/registry/apiservice/rest"
	openapicommon "k8s.io/kube-openapi/pkg/common"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/openapi/documents"
	"github.com/sailplane-dev/sailplane/pkg/internal/upstream"
)

// APIServices serves the API group apiregistration.k8s.io, and hands requests for the groups
// of other API servers to these. Where they are is said by Servers, by [URLAnnotation], and by
// the parts of package services. Each is looked at all the time; condition Available says what
// came of it, with the reasons of kube-aggregator, and requests to one that is not available
// are answered with 503 at once.
type APIServices struct {
	// Servers are servers that the operator names. Empty: none but those of the APIServices.
	Servers []Server
	// Deny are networks that the servers of APIServices may not be in, checked on
	// connecting to one. Those at which clouds have services for their machines, and
	// other link-local ones (admit.LinkLocal), are always in it. It is not for Servers, and
	// not for the addresses of services.Addresses.
	Deny []netip.Prefix
	// Allow are networks in denied ones that servers may be in. Empty: none.
	Allow []netip.Prefix
	// Patience is how long the deletion of a namespace waits for a server that is away and may
	// hold objects of it. Empty: 30 seconds.
	Patience time.Duration
	// Dir keeps the certificate authority by which the servers know that this one hands
	// requests on, and its certificate, which is renewed in time. The ConfigMap
	// extension-apiserver-authentication in kube-system has the authority. Empty: a new one
	// in memory at each start.
	Dir string
}

// PartName implements the name errors use.
func (APIServices) PartName() string { return "aggregator.APIServices" }

// Install declares the aggregator above the groups.
func (a APIServices) Install(p *controlplane.Plan) error {
	proves := &identity{dir: a.Dir}
	connections := newConnections(a.Deny, a.Allow, p, proves)
	if err := connections.Check(); err != nil {
		return err
	}
	servers, err := a.given()
	if err != nil {
		return err
	}
	r, remotes := newRegistration(), newRemotes(connections, servers)
	publishes := newPublisher(proves, p)
	reports := newReporter(remotes, publishes)
	for _, g := range servers {
		g.install(p, remotes.changed.Announce)
	}
	p.Above("aggregator", func(plane *controlplane.Plane, delegate genericapiserver.DelegationTarget) (*controlplane.Link, error) {
		return link(plane, delegate, r, reports)
	})
	p.Dynamic(remotes)
	p.LongRunning(remotes.lasts)
	p.AggregatedServers(reports.servers)
	p.ProvideAggregatedCounter("objects of the servers of APIServices", counter{remotes})
	if a.Patience < 0 {
		return fmt.Errorf("field Patience: %v: want more than 0, or 0 for 30s", a.Patience)
	}
	p.AwaitServers(a.Patience)
	p.Work(controlplane.Work{Name: "register APIServices", Run: r.run})
	p.Wrap(controlplane.BeforeAuthentication, "name of the server", remotes.name)
	p.Wrap(controlplane.Innermost, "APIServices on demand", r.wrap)
	p.Wrap(controlplane.Innermost, "who hands requests on, on demand", publishes.wrap)
	p.Work(controlplane.Work{Name: "certificate for the servers of APIServices", Run: proves.run})
	p.Work(controlplane.Work{Name: "publish who hands requests on", Run: publishes.run})
	p.Admit("remember available APIServices", rememberAvailable{})
	p.Work(controlplane.Work{Name: "look after the servers of APIServices", Run: reports.run})
	return nil
}

// given checks the servers.
func (a APIServices) given() ([]*given, error) {
	var all []*given
	var errs []error
	for i, s := range a.Servers {
		g, err := give(s)
		if err == nil && slices.ContainsFunc(all, func(other *given) bool { return other.Name == g.Name }) {
			err = fmt.Errorf("field Name: %q: another server has the name", g.Name)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("field Servers[%d]: %w", i, err))
			continue
		}
		all = append(all, g)
	}
	return all, errors.Join(errs...)
}

// models is the OpenAPI config of APIServices: the same for all planes.
var models = sync.OnceValue(func() *openapicommon.OpenAPIV3Config {
	return documents.ShareConfig(genericapiserver.DefaultOpenAPIV3Config(generatedopenapi.GetOpenAPIDefinitions,
		apiopenapi.NewDefinitionNamer(aggregatorscheme.Scheme)))
})

// served are the routes of APIServices: the same in all planes.
var served = sync.OnceValue(func() *upstream.Routes { return &upstream.Routes{} })

func link(
	p *controlplane.Plane, delegate genericapiserver.DelegationTarget, r *registration, reports *reporter,
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
	generic.EnableDiscovery = false // the groups below have it
	generic.RESTOptionsGetter = p.RESTOptions(codec, encode)
	generic.OpenAPIV3Config = documents.CloneConfig(models())
	remotes := reports.remotes
	server, err := generic.Complete().New("aggregator", newRouter(delegate, p, remotes))
	if err != nil {
		return nil, err
	}
	group := apiservicerest.NewRESTStorage(aggregatorserver.DefaultAPIResourceConfigSource(), generic.RESTOptionsGetter, false)
	if err := server.InstallAPIGroup(&group); err != nil {
		server.Destroy()
		return nil, err
	}
	documents.ReleaseConfig(generic.OpenAPIV3Config)
	served().ShareAll(server.Handler.GoRestfulContainer)
	server.Handler.NonGoRestfulMux.HandleFunc(healthPath, reports.health)
	reports.manager = generic.AggregatedDiscoveryGroupManager.WithSource(discoveryendpoint.AggregatorSource)
	client, err := clientset.NewForConfig(asAggregator(p.ProtobufConfig()))
	if err != nil {
		server.Destroy()
		return nil, err
	}
	r.informers = externalversions.NewSharedInformerFactory(client, 0)
	if err := remotes.watch(r.informers.Apiregistration().V1().APIServices()); err != nil {
		server.Destroy()
		return nil, fmt.Errorf("watch APIServices: %w", err)
	}
	return &controlplane.Link{
		Server: server,
		Start: func(ctx, life context.Context) error {
			r.informers.StartWithContext(life)
			if res := r.informers.WaitForCacheSyncWithContext(ctx); res.Err != nil {
				return fmt.Errorf("read the APIServices: %w", res.AsError())
			}
			return nil
		},
		Stop: func() {
			r.informers.Shutdown()
			remotes.connections.CloseAll()
		},
		Definitions: func() (openapicommon.GetOpenAPIDefinitions, error) {
			return generatedopenapi.GetOpenAPIDefinitions, nil
		},
		Schemes: func() ([]*runtime.Scheme, error) { return []*runtime.Scheme{aggregatorscheme.Scheme}, nil },
		GroupVersions: []controlplane.GroupVersion{{
			Group: apiregistrationv1.GroupName, Version: apiregistrationv1.SchemeGroupVersion.Version,
			GroupPriority: 20001, VersionPriority: 18, // the first, as in kube-aggregator
		}},
	}, nil
}
