package controlplane

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	unionauthz "k8s.io/apiserver/pkg/authorization/union"
	discoveryendpoint "k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/notfoundhandler"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/internal/metrics"
	"github.com/sailplane-dev/sailplane/pkg/internal/upstream"
	"github.com/sailplane-dev/sailplane/pkg/internal/vouched"
)

// build makes the plane from what its parts declared. Only the watch caches of its
// stores run yet; stop ends them.
func (p *Plane) build() error {
	var err error
	if p.client, err = kubernetes.NewForConfig(p.ProtobufConfig()); err != nil {
		return fmt.Errorf("loopback client: %w", err)
	}
	p.informers = newInformers(p, p.client)
	if p.recorder, err = startRecorder(p.plan.outlets); err != nil {
		return err
	}
	if p.base, err = p.baseConfig(p.client); err != nil {
		p.recorder.stop()
		return err
	}
	if err := p.assemble(); err != nil {
		p.discard()
		return err
	}
	p.built = true
	return nil
}

// assemble links the delegation chain: the servers below, the groups, the servers
// above.
func (p *Plane) assemble() error {
	notFound := notfoundhandler.New(unversionedCodecs(), p.signals.completed)
	var delegate genericapiserver.DelegationTarget = genericapiserver.NewEmptyDelegateWithCustomHandler(notFound)
	links := append(append([]named[LinkFunc]{}, p.plan.below...), named[LinkFunc]{name: "groups", value: groups})
	for _, l := range append(links, p.plan.above...) {
		link, err := l.value(p, prepared(delegate, delegate))
		if err != nil {
			return fmt.Errorf("part %q: %s: %w", l.part, l.name, err)
		}
		p.links = append(p.links, link)
		p.top = link.Server
		delegate = link.Server
	}
	for _, gv := range p.GroupVersions() {
		p.base.AggregatedDiscoveryGroupManager.SetGroupVersionPriority(
			metav1.GroupVersion{Group: gv.Group, Version: gv.Version}, int(gv.GroupPriority), int(gv.VersionPriority))
	}
	if err := p.addChecks(); err != nil {
		return err
	}
	// Upstream's mux keeps the caller's stack with each path, and health checks have
	// many paths: the stack of a new goroutine is short.
	<-background(func() { p.top.PrepareRun() })
	// The server has registered what it counts; this shows it in fewer series.
	paths := p.top.Handler.NonGoRestfulMux
	paths.Unregister("/metrics")
	paths.Handle("/metrics", metrics.Handler())
	paths.HandleFunc(sourcesPath, p.sources.health)
	for _, h := range p.plan.handlers {
		p.handle(h.name, h.value)
	}
	return p.installOpenAPI()
}

// prepared hides a server's PrepareRun from the next server of the chain: it would
// give each server health paths, of which only the top server's can be reached, and
// those check all. The type that upstream's PrepareRun returns is not exported, so
// it is inferred.
func prepared[T any](d genericapiserver.DelegationTarget, _ interface{ PrepareRun() T }) genericapiserver.DelegationTarget {
	t, ok := any(below[T]{d}).(genericapiserver.DelegationTarget)
	if !ok {
		return d
	}
	return t
}

type below[T any] struct {
	genericapiserver.DelegationTarget
}

// PrepareRun implements genericapiserver.DelegationTarget.
func (below[T]) PrepareRun() (none T) { return none }

// discard ends what already runs in a plane that was not started: the watch caches
// of its stores, and the queues that controllers own from the moment they are made
// and that only their run ends.
func (p *Plane) discard() {
	defer p.signals.markDrained()
	defer p.signals.markDraining()
	defer p.recorder.stop()
	if p.top == nil {
		p.endFlow()
		p.loopback.transport.Close()
		return
	}
	life, end := context.WithCancel(context.Background())
	settled, cancel := context.WithTimeout(life, hooksTimeout)
	defer cancel()
	p.loopback.transport.Serve(p.top.Handler)
	// Hooks that do not settle in time end with the process: the error that led here
	// is the one to report.
	if p.startLinks(settled, life) == nil {
		_ = upstream.AwaitHooks(settled, p.top)
	}
	end()
	for _, l := range p.links {
		if l.Stop != nil {
			l.Stop()
		}
	}
	p.open.end()
	p.loopback.transport.Close()
	p.top.Destroy()
}

// ServerConfig returns a new configuration for one server of the chain, with the
// plane's authentication, authorization, admission and handler chain.
func (p *Plane) ServerConfig(codecs serializer.CodecFactory) *genericapiserver.RecommendedConfig {
	c := *p.base
	c.Serializer = codecs
	c.PostStartHooks = map[string]genericapiserver.PostStartHookConfigEntry{}
	return &c
}

// RESTOptions returns the options of resources that are stored with the codec.
func (p *Plane) RESTOptions(codec runtime.Codec, encode runtime.GroupVersioner) generic.RESTOptionsGetter {
	return p.stores.Getter(codec, encode)
}

func (p *Plane) baseConfig(client kubernetes.Interface) (*genericapiserver.RecommendedConfig, error) {
	c := genericapiserver.NewRecommendedConfig(unversionedCodecs())
	c.ExternalAddress = p.host.address
	c.LoopbackClientConfig = p.loopback.config
	c.SharedInformerFactory = p.informers
	c.EffectiveVersion = effectiveVersion()
	c.SkipOpenAPIInstallation = true
	c.EnableProfiling = false
	c.EnableIndex = true
	c.NonLongRunningRequestWaitGroup = p.requests
	c.WatchRequestWaitGroup = p.watches
	streams := p.plan.streams()
	c.LongRunningFunc = longRunning(append([]apirequest.LongRunningRequestCheck{c.LongRunningFunc, streams}, p.plan.lasting...))
	c.BuildHandlerChainFunc = (&chain{
		middleware: p.plan.middleware, signals: p.signals, ready: p.ready, routes: p.routes,
		tracing: p.host.tracer != nil, lists: p.lists(),
		plane: p.space, stored: p.Stored, streams: streams, consoles: p.plan.consoles(), limits: p.host.server.built.limits,
		bodies: p.bodies, addresses: p.host.server.addresses,
		recorder: p.recorder, answers: p.host.answers, turns: p.host.turns, weights: &weights{}, open: p.open,
	}).build
	c.AggregatedDiscoveryGroupManager = discoveryManager{
		discoveryendpoint.NewResourceManager("apis"), discoveryendpoint.BuiltinSource, &p.discoveryIndex,
	}
	c.StorageObjectCountTracker = p.stores.Objects
	// Clipped: the servers of the chain share this slice and append to it.
	c.HealthzChecks = slices.Clip(append(c.HealthzChecks, p.host.stored...))
	c.ReadyzChecks = slices.Clip(append(c.ReadyzChecks, p.host.stored...))
	c.LivezChecks = slices.Clip(append(c.LivezChecks, p.host.living...))
	// The plane starts its informers itself, and waits for them without polling.
	c.DisabledPostStartHooks.Insert("generic-apiserver-start-informers")
	c.Authentication.Authenticator = p.authenticator()
	authorizer, err := p.authorizer()
	if err != nil {
		return nil, err
	}
	c.Authorization.Authorizer = authorizer
	c.RuleResolver = nil
	chain, err := p.admission(client, authorizer)
	if err != nil {
		return nil, err
	}
	c.AdmissionControl = chain
	p.recorder.configure(&c.Config)
	if p.host.tracer != nil {
		c.TracerProvider = p.host.tracer
	}
	// Last: only a plane that got this far ends what it starts.
	return c, p.controlFlow(&c.Config)
}

// longRunning tells whether any of the checks takes a request for one that may last.
func longRunning(checks []apirequest.LongRunningRequestCheck) apirequest.LongRunningRequestCheck {
	return func(r *http.Request, info *apirequest.RequestInfo) bool {
		return slices.ContainsFunc(checks, func(lasts apirequest.LongRunningRequestCheck) bool { return lasts(r, info) })
	}
}

// authenticator asks the parts' authenticators in order. Without any, only the loopback
// client is known, whose token upstream adds, and whom another server in the process vouches
// for.
func (p *Plane) authenticator() authenticator.Request {
	asked := []authenticator.Request{vouched.Authenticator()}
	for _, a := range p.plan.authenticators {
		asked = append(asked, a.value)
	}
	return group.NewAuthenticatedGroupAdder(union.New(asked...))
}

func (p *Plane) authorizer() (authorizer.Authorizer, error) {
	asked := []unionauthz.NamedAuthorizer{{
		AuthorizerName: "group " + user.SystemPrivilegedGroup,
		Authorizer:     authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup),
	}}
	for _, a := range p.plan.authorizers {
		asked = append(asked, unionauthz.NamedAuthorizer{
			AuthorizerName: a.name, Authorizer: authorizer.AuthorizerFunc(a.value.Authorize),
		})
	}
	return unionauthz.New(asked...)
}

// ProtobufConfig is Config for clients of types with a protobuf form, which is
// cheaper to send: built-in types, CRDs and APIServices, but no custom resources.
func (p *Plane) ProtobufConfig() *rest.Config {
	c := p.Config()
	c.ContentType = runtime.ContentTypeProtobuf
	c.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return c
}

// unversionedCodecs encode types of no group: Status, discovery. All servers share
// them.
var unversionedCodecs = sync.OnceValue(func() serializer.CodecFactory {
	s := runtime.NewScheme()
	v1 := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(s, v1)
	s.AddUnversionedTypes(v1, &metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{},
		&metav1.APIGroup{}, &metav1.APIResourceList{})
	return serializer.NewCodecFactory(s)
})
