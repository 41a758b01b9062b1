package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilwaitgroup "k8s.io/apimachinery/pkg/util/waitgroup"
	registryrest "k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	openapicommon "k8s.io/kube-openapi/pkg/common"

	"github.com/sailplane-dev/sailplane/pkg/feed"
	"github.com/sailplane-dev/sailplane/pkg/internal/bodies"
	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
	"github.com/sailplane-dev/sailplane/pkg/internal/store"
	"github.com/sailplane-dev/sailplane/pkg/internal/upstream"
)

// Plane is one complete API: its chain of servers, admission, work and a place of
// its own in the storage. A plane is handed to the work its parts declared.
type Plane struct {
	space    string // its name, empty for the root plane
	host     *host
	plan     *Plan
	stores   *store.Stores
	loopback *loopbackAccess
	gate     *gate

	informers    informers.SharedInformerFactory
	client       kubernetes.Interface
	kinds        lazyKinds
	signals      *signals
	recorder     *recorder
	base         *genericapiserver.RecommendedConfig
	links        []*Link
	groupsServer *genericapiserver.GenericAPIServer
	resources    map[schema.GroupResource]registryrest.Storage
	top          *genericapiserver.GenericAPIServer

	requests *utilwaitgroup.SafeWaitGroup
	watches  *utilwaitgroup.RateLimitedSafeWaitGroup
	// watchesEnd is made when the plane begins to wait for watches, and closed when
	// all have ended.
	watchesEnd  chan struct{}
	watchesOnce sync.Once
	endWork     context.CancelFunc
	work        []named[Work] // of the resources
	workers     workers
	ready       chan struct{}

	open           *openRequests
	sources        sources
	routes         *lazyRoutes
	discoveryIndex discoveryIndex
	feed           *feed.Feed
	bodies         *bodies.Checker

	built   bool // and must be stopped
	stopped sync.Once
	done    chan struct{}
	given   sync.Once
	err     error // why it ended, once done
}

// prepare makes a plane that runs nothing yet.
func prepare(h *host, plan *Plan, space string, in *loopbackAccess) *Plane {
	p := &Plane{
		space: space, host: h, plan: plan, loopback: in, gate: &gate{},
		stores: &store.Stores{
			Backend: h.backend, Plane: space, CollectsGarbage: plan.collected,
			Objects: flowcontrolrequest.NewStorageObjectCountTracker(),
		},
		signals: newSignals(), endWork: func() {}, routes: newLazyRoutes(),
		discoveryIndex: discoveryIndex{versions: map[listedVersion]map[string]bool{}},
		resources:      map[schema.GroupResource]registryrest.Storage{},
		requests:       &utilwaitgroup.SafeWaitGroup{}, watches: &utilwaitgroup.RateLimitedSafeWaitGroup{},
		ready: make(chan struct{}), done: make(chan struct{}), open: newOpenRequests(&plan.rules),
	}
	for _, g := range plan.guards {
		p.stores.Guards = append(p.stores.Guards, g.value)
	}
	p.bodies = &bodies.Checker{Limits: bodies.Limits(h.server.built.limits.Bodies), TypeOf: p.typeOf}
	p.stores.Bodies = p.bodies
	p.workers.plane = p
	return p
}

// Link is one server of a plane's delegation chain.
type Link struct {
	// Server answers, or hands on to its delegate.
	Server *genericapiserver.GenericAPIServer
	// Start runs before the server's post-start hooks: start informers here, to
	// run until life ends, and wait for them as long as ctx lasts, since the
	// hooks' controllers poll every 100 ms for caches that are not yet synced.
	// May be nil.
	Start func(ctx, life context.Context) error
	// Stop waits for what Start started, after life ended. May be nil.
	Stop func()
	// Definitions gives the OpenAPI definitions of what the server installed,
	// when a document is first asked for.
	Definitions func() (openapicommon.GetOpenAPIDefinitions, error)
	// Schemes hold the types of what the server installed.
	Schemes func() ([]*runtime.Scheme, error)
	// GroupVersions are those the server serves as long as it runs.
	GroupVersions []GroupVersion
}

// LinkFunc makes a server of the chain that hands on to the delegate.
type LinkFunc func(p *Plane, delegate genericapiserver.DelegationTarget) (*Link, error)

// Name is that of a plane which was added to its server; empty for the root plane.
func (p *Plane) Name() string { return p.space }

// Server is the server of the plane.
func (p *Plane) Server() *Server { return p.host.server }

// Ready is closed when the plane is ready: when every Start of its parts has
// returned, and its caches are filled.
func (p *Plane) Ready() <-chan struct{} { return p.ready }

// Config is a client configuration with all rights that reaches the plane
// without a socket. It stays valid until the plane stops.
func (p *Plane) Config() *rest.Config { return rest.CopyConfig(p.loopback.config) }

// Client is a client of the built-in types, with all rights, that reaches the plane as
// Config does.
func (p *Plane) Client() kubernetes.Interface { return p.client }

// Handler serves the API with the plane's authentication and authorization, to be
// mounted at the root of a host, or below a path that is taken off. It answers 503
// before the plane serves, and after it has stopped.
func (p *Plane) Handler() http.Handler { return p.gate }

// Informers are the plane's shared informers for built-in types. Those requested
// before the plane starts are synced when it is ready.
func (p *Plane) Informers() informers.SharedInformerFactory { return p.informers }

// GroupVersions are those the plane serves from its groups and links, in order.
func (p *Plane) GroupVersions() []GroupVersion {
	var all []GroupVersion
	for _, l := range p.links {
		all = append(all, l.GroupVersions...)
	}
	return all
}

// Dynamic are the groups of the plane that come and go.
func (p *Plane) Dynamic() []DynamicGroups { return p.plan.dynamic }

// Feed mirrors the metadata of every object that the plane stores; nil when no
// part asked for it with [Plan.Feed]. It runs when work of the parts does.
func (p *Plane) Feed() *feed.Feed { return p.feed }

// Stored tells whether the plane keeps the resource's objects in its own storage,
// where its feed sees them, also when they are stored as those of another resource.
func (p *Plane) Stored(resource schema.GroupResource) bool {
	return p.stores.Has(resource) || p.plan.isView(resource)
}

// Caches are the resources whose watch caches are in use. There may be several of a
// resource: one for each version of a custom resource.
func (p *Plane) Caches() []schema.GroupResource { return p.stores.Caches() }

// start runs the plane, and returns when it is ready and whenReady is done. The
// first context bounds the start, the second the plane's life.
func (p *Plane) start(ctx, life context.Context, whenReady []named[Work], fail func(error)) error {
	log := klog.FromContext(ctx)
	life, p.endWork = context.WithCancel(life)
	phase := time.Now()
	done := func(name string) {
		log.V(1).Info("Started", "phase", name, "plane", p.space, "ms", time.Since(phase).Milliseconds())
		phase = time.Now()
	}
	p.loopback.transport.Serve(p.top.Handler)
	if err := p.startLinks(ctx, life); err != nil {
		return err
	}
	if err := p.stores.Begin(ctx); err != nil {
		return err
	}
	done("links")
	p.informers.StartWithContext(life)
	// Before any work of the parts: admission plugins poll for informers that
	// are not synced.
	if res := p.informers.WaitForCacheSyncWithContext(ctx); res.Err != nil {
		return fmt.Errorf("informers did not sync: %w", res.AsError())
	}
	p.signals.markComplete()
	done("informers")
	if err := p.startFeed(life); err != nil {
		return err
	}
	p.workers.fail = fail
	if err := p.workers.start(ctx, life, slices.Concat(p.plan.work, p.work)); err != nil {
		return err
	}
	done("work")
	if err := upstream.AwaitHooks(ctx, p.top); err != nil {
		return err
	}
	done("hooks")
	close(p.ready)
	p.workers.running.Go(func() { p.stores.Fill(life) })
	p.workers.running.Go(func() { p.open.run(life) })
	return p.workers.start(ctx, life, whenReady)
}

// startFeed starts the feed when a part asked for it.
func (p *Plane) startFeed(life context.Context) error {
	if !p.plan.fed {
		return nil
	}
	var err error
	if p.feed, err = p.host.feed(life, p.space); err != nil {
		return err
	}
	p.workers.running.Go(func() { p.feed.Run(life) })
	return nil
}

// startLinks starts what the links watch and then, even after an error, the
// post-start hooks: controllers own queues from the moment they are made, and only
// their run ends them.
func (p *Plane) startLinks(ctx, life context.Context) error {
	defer p.top.RunPostStartHooks(life)
	var errs []error
	for _, l := range p.links {
		if l.Start != nil {
			errs = append(errs, l.Start(ctx, life))
		}
	}
	return errors.Join(errs...)
}

// drain lets post-start hooks settle, refuses new requests, waits for those that
// run, ends the plane's informers and then all watches. The context bounds the wait
// for requests. Informers end first, so that they do not try to watch again. A
// watch whose client does not read ends only with its connection: stop waits for
// it.
func (p *Plane) drain(ctx context.Context) error {
	// A hook whose context ends while it waits for another one never runs its
	// controller, whose queue then never ends. The hooks of a plane that was ready are
	// done.
	settled, cancel := context.WithTimeout(ctx, hooksTimeout)
	defer cancel()
	late := upstream.AwaitHooks(settled, p.top)
	p.signals.markDraining()
	select {
	case <-background(p.requests.Wait):
	case <-ctx.Done():
		late = errors.Join(late, errors.New("requests were still running when the time to drain them ended"))
	}
	p.signals.markDrained()
	p.endWork()
	p.open.end()
	if !p.awaitWatches(watchesTimeout) {
		p.loopback.transport.Cut()
	}
	return late
}

// awaitWatches waits for the handlers of watches, and tells whether they ended in
// time. The wait itself goes on: upstream's may be begun only once.
func (p *Plane) awaitWatches(timeout time.Duration) bool {
	p.watchesOnce.Do(func() {
		p.watchesEnd = make(chan struct{})
		go func() {
			_, _, err := p.watches.Wait(func(int) (utilwaitgroup.RateLimiter, context.Context, context.CancelFunc) {
				ctx, cancel := context.WithTimeout(context.Background(), watchesTimeout+2*workTimeout)
				return rate.NewLimiter(rate.Inf, 1), ctx, cancel
			})
			if err == nil {
				close(p.watchesEnd)
			}
		}()
	})
	select {
	case <-p.watchesEnd:
		return true
	case <-time.After(timeout):
		return false
	}
}

// stop waits for the plane's work and closes its stores. Call drain before,
// unless the plane was never served.
func (p *Plane) stop() error {
	p.signals.markDraining()
	p.signals.markDrained()
	p.endWork()
	p.open.end()
	err := p.top.RunPreShutdownHooks()
	if !p.awaitWatches(workTimeout) {
		err = errors.Join(err, fmt.Errorf("watches were still running %v after their connections were closed", workTimeout))
	}
	err = errors.Join(err, p.workers.stop())
	p.informers.Shutdown()
	for _, l := range p.links {
		if l.Stop != nil {
			l.Stop()
		}
	}
	p.loopback.transport.Close()
	p.recorder.stop()
	p.top.Destroy()
	p.plan.closeHosts()
	return err
}

// Stop drains the requests of a plane that was added to a running server, as long
// as the context lasts and at most as [Builder.Drain] says, ends its watches and its work, and
// returns when nothing of it runs. Its stored objects stay. Work of the plane must
// not wait for Stop, and the root plane stops with its server.
func (p *Plane) Stop(ctx context.Context) error {
	if p.space == "" {
		return errors.New("the root plane stops with its server: stop the server instead")
	}
	p.stopped.Do(func() {
		ctx, cancel := context.WithTimeout(ctx, p.host.server.built.drain)
		defer cancel()
		var late error
		if p.built {
			late = p.drain(ctx)
			p.gate.close()
			late = errors.Join(late, p.stop())
		}
		p.given.Do(func() {}) // what comes after is a consequence
		p.err = errors.Join(p.err, late)
		p.host.leave(p)
		close(p.done)
	})
	<-p.done
	return p.err
}

// endWith ends the plane because of an error of its work.
func (p *Plane) endWith(err error) {
	p.given.Do(func() {
		p.err = err
		p.host.log.Error(err, "Stopping a plane after an error", "plane", p.space)
		go func() { _ = p.Stop(context.Background()) }() // Err returns what Stop returns
	})
}

// Done is closed when the plane has stopped.
func (p *Plane) Done() <-chan struct{} { return p.done }

// Err is why the plane has ended, or what went wrong when it was stopped; nil before.
func (p *Plane) Err() error {
	if signal.Closed(p.done) {
		return p.err
	}
	return nil
}

// workTimeout bounds how long a stopping plane waits for the parts' work, and for
// watches whose connections are closed.
const workTimeout = 30 * time.Second

// hooksTimeout bounds how long a plane that stops while it starts waits for its
// post-start hooks.
const hooksTimeout = 5 * time.Second

// watchesTimeout bounds how long a stopping plane waits for watch handlers to
// return before connections are closed. They have been told to end, and return at
// once unless they write to a client that does not read.
const watchesTimeout = 5 * time.Second

// addChecks adds the plane's own health checks.
func (p *Plane) addChecks() error {
	if err := p.top.AddHealthChecks(p.plan.checks...); err != nil {
		return err
	}
	return p.top.AddReadyzChecks(
		healthz.NamedCheck("plane-started", func(*http.Request) error {
			if !signal.Closed(p.ready) {
				return errors.New("not started yet")
			}
			return nil
		}),
		healthz.NamedCheck("plane-serving", func(*http.Request) error {
			if signal.Closed(p.signals.draining) {
				return errors.New("stopping")
			}
			return nil
		}))
}
