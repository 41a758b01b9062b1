package crd

import (
	"context"
	"fmt"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	generatedopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/tools/cache"
	openapicommon "k8s.io/kube-openapi/pkg/common"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/openapi/documents"
	"github.com/sailplane-dev/sailplane/pkg/internal/upstream"
)

// models is the OpenAPI config of CRDs: the same for all planes, and half a megabyte.
var models = sync.OnceValue(func() *openapicommon.OpenAPIV3Config {
	return documents.ShareConfig(genericapiserver.DefaultOpenAPIV3Config(generatedopenapi.GetOpenAPIDefinitions,
		apiopenapi.NewDefinitionNamer(apiextensionsserver.Scheme)))
})

// routes are those that serve CRDs: the same in all planes.
var routes = sync.OnceValue(func() *upstream.Routes { return &upstream.Routes{} })

// link makes the server of CRDs and custom resources.
func (g *groups) link(p *controlplane.Plane, delegate genericapiserver.DelegationTarget) (*controlplane.Link, error) {
	codec, encode, err := serverstorage.NewStorageCodec(serverstorage.StorageCodecConfig{
		StorageMediaType:  runtime.ContentTypeJSON,
		StorageSerializer: apiextensionsserver.Codecs,
		StorageVersion:    apiextensionsv1.SchemeGroupVersion,
		MemoryVersion:     schema.GroupVersion{Group: apiextensionsv1.GroupName, Version: runtime.APIVersionInternal},
	})
	if err != nil {
		return nil, err
	}
	generic := p.ServerConfig(apiextensionsserver.Codecs)
	generic.LoopbackClientConfig = p.ProtobufConfig()
	generic.RESTOptionsGetter = wrapping{p.RESTOptions(stored{codec}, encode), g.keep}
	generic.MergedResourceConfig = apiextensionsserver.DefaultAPIResourceConfigSource()
	others, ok := generic.AdmissionControl.(plugins)
	if !ok {
		return nil, fmt.Errorf("admission is a %T that does not mutate and validate", generic.AdmissionControl)
	}
	generic.AdmissionControl = newChecking(g, others)
	generic.OpenAPIV3Config = documents.CloneConfig(models())
	// link.Start does what these hooks do, in order and without polling; the
	// second also ends the process when the server stops while it starts.
	generic.DisabledPostStartHooks.Insert("start-apiextensions-informers", "crd-informer-synced")
	config := apiextensionsserver.Config{
		GenericConfig: generic,
		ExtraConfig: apiextensionsserver.ExtraConfig{
			CRDRESTOptionsGetter: wrapping{p.RESTOptions(unstructured.UnstructuredJSONScheme, nil), g.serving.note},
			MasterCount:          1,
			ServiceResolver:      g.webhooks,
			AuthResolverWrapper:  g.connect,
		},
	}
	server, err := config.Complete().New(delegate)
	if err != nil {
		return nil, err
	}
	documents.ReleaseConfig(generic.OpenAPIV3Config)
	routes().ShareAll(server.GenericAPIServer.Handler.GoRestfulContainer)
	crds := server.Informers.Apiextensions().V1().CustomResourceDefinitions()
	g.plane, g.informer, g.lister = p, crds.Informer(), crds.Lister()
	g.serving.handler, g.serving.lister = server.GenericAPIServer.Handler.NonGoRestfulMux, g.lister
	if err := g.follow(); err != nil {
		return nil, fmt.Errorf("watch CRDs: %w", err)
	}
	return &controlplane.Link{
		Server: server.GenericAPIServer,
		Start: func(ctx, life context.Context) error {
			server.Informers.StartWithContext(life)
			if res := server.Informers.WaitForCacheSyncWithContext(ctx); res.Err != nil {
				return fmt.Errorf("read the CRDs: %w", res.AsError())
			}
			return nil
		},
		Stop: func() {
			server.Informers.Shutdown()
			g.webhooks.CloseAll()
		},
		Definitions: func() (openapicommon.GetOpenAPIDefinitions, error) {
			return generatedopenapi.GetOpenAPIDefinitions, nil
		},
		Schemes: func() ([]*runtime.Scheme, error) { return []*runtime.Scheme{apiextensionsserver.Scheme}, nil },
		GroupVersions: []controlplane.GroupVersion{{
			Group: apiextensionsv1.GroupName, Version: apiextensionsv1.SchemeGroupVersion.Version,
			GroupPriority: 16700, VersionPriority: 15,
		}},
	}, nil
}

// follow has the informer tell of changes.
func (g *groups) follow() error {
	err := g.informer.SetTransform(func(o any) (any, error) {
		if crd, ok := o.(*apiextensionsv1.CustomResourceDefinition); ok {
			assumeEstablished(crd)
		}
		return o, nil
	})
	if err != nil {
		return err
	}
	_, err = g.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { g.notify() },
		UpdateFunc: func(any, any) { g.notify() },
		DeleteFunc: func(any) { g.notify() },
	})
	return err
}

// connect calls conversion webhooks through the plane's dialer, and replaces
// upstream's wrapper. That would call the plane itself, with all rights, for
// https://kubernetes.default.svc: anyone who may write CRDs could make it post to
// any path.
func (g *groups) connect(anonymous webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
	return g.webhooks.Resolver(anonymous)
}
