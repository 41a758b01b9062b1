package controlplane

import (
	"context"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/filterlatency"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericfeatures "k8s.io/apiserver/pkg/features"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/server/routine"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"github.com/sailplane-dev/sailplane/pkg/internal/addresses"
	"github.com/sailplane-dev/sailplane/pkg/internal/bodies"
	"github.com/sailplane-dev/sailplane/pkg/internal/loopback"
	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
	"github.com/sailplane-dev/sailplane/pkg/internal/stack"
	"github.com/sailplane-dev/sailplane/pkg/internal/turns"
	"github.com/sailplane-dev/sailplane/pkg/internal/upstream"
	"github.com/sailplane-dev/sailplane/pkg/internal/vouched"
)

// Slot is a place in the handler chain where middleware goes.
type Slot int

const (
	// Outermost sees every request first, before panics are recovered and
	// before the request is understood.
	Outermost Slot = iota
	// BeforeAuthentication knows the RequestInfo but not the user. Of a query longer than
	// 1 KiB it knows whether it watches, and no long selectors.
	BeforeAuthentication
	// AfterAuthentication knows the user, before impersonation, audit,
	// fairness and authorization.
	AfterAuthentication
	// AfterAudit knows the user before impersonation, and what it refuses is
	// audited. It is before fairness and authorization.
	AfterAudit
	// Innermost runs after authorization, right before the API.
	Innermost
)

// String names the slot as errors do.
func (s Slot) String() string {
	switch s {
	case Outermost:
		return "outermost"
	case BeforeAuthentication:
		return "before authentication"
	case AfterAuthentication:
		return "after authentication"
	case AfterAudit:
		return "after audit"
	case Innermost:
		return "innermost"
	}
	return "unknown slot"
}

// wrapper is one middleware in its slot.
type wrapper struct {
	part, name string
	slot       Slot
	wrap       func(http.Handler) http.Handler
}

// chain builds the handler chain of a plane: every filter of upstream's
// DefaultBuildHandlerChain in its order, which a test compares, with the slots in
// between. Upstream's function has no place for them, and reads signals of a life
// cycle that is not ours.
type chain struct {
	middleware []wrapper
	signals    *signals
	// ready is closed when every Start of the plane's parts has returned.
	ready <-chan struct{}
	// routes are the group versions whose handlers are made when they are needed.
	routes *lazyRoutes
	// tracing is on when a part brings a tracer.
	tracing bool
	// lists filters lists; nil when no part filters any.
	lists *lists
	// plane is its name.
	plane string
	// stored tells which resources the plane keeps in its own storage.
	stored func(schema.GroupResource) bool
	// streams tells which requests are for streams of the plane's own resources.
	streams apirequest.LongRunningRequestCheck
	// consoles tells which of them take the verb create, whatever the method.
	consoles apirequest.LongRunningRequestCheck
	// limits have a value in every field.
	limits Limits
	bodies *bodies.Checker
	// addresses are the server's, for all its planes.
	addresses *addresses.Table
	// recorder waits for the requests that are audited.
	recorder *recorder
	// answers is the memory of large answers; nil when nothing limits it.
	answers *budget
	// turns are for large requests; nil when nothing limits them.
	turns *turns.Line
	// weights are the lists that were large.
	weights *weights
	// open are the requests that last.
	open *openRequests
}

// signals are the moments of a plane's life that filters wait for.
type signals struct {
	// complete is closed when every path is installed.
	complete chan struct{}
	// draining is closed when the plane takes no new requests.
	draining chan struct{}
	// drained is closed when the running requests have ended: until then admission
	// works.
	drained chan struct{}

	completeOnce, drainingOnce, drainedOnce sync.Once
}

func newSignals() *signals {
	return &signals{complete: make(chan struct{}), draining: make(chan struct{}), drained: make(chan struct{})}
}

func (s *signals) markComplete() { s.completeOnce.Do(func() { close(s.complete) }) }
func (s *signals) markDraining() { s.drainingOnce.Do(func() { close(s.draining) }) }
func (s *signals) markDrained()  { s.drainedOnce.Do(func() { close(s.drained) }) }

func (s *signals) completed(context.Context) bool { return signal.Closed(s.complete) }

// ShuttingDown implements request.ServerShutdownSignal. The signal never comes: watches
// end with their contexts (openRequests.end). All watches would wait for one channel,
// whose lock each needs twice for each event.
func (s *signals) ShuttingDown() <-chan struct{} { return nil }

// slot wraps the handler in the slot's middleware, the first one outermost.
func (c *chain) slot(slot Slot, h http.Handler) http.Handler {
	for i := len(c.middleware) - 1; i >= 0; i-- {
		if c.middleware[i].slot == slot {
			h = c.middleware[i].wrap(h)
		}
	}
	return h
}

// build is a genericapiserver.Config.BuildHandlerChainFunc.
func (c *chain) build(api http.Handler, config *genericapiserver.Config) http.Handler {
	h := c.slot(Innermost, c.withBodyLimits(upstream.BadInput(c.routes.wrap(api), c.stored, c.streams)))
	h = c.permitted(h, config)
	h = resolved(c.slot(AfterAuthentication, h), config.RequestInfoResolver)
	h = c.authenticated(h, config)
	h = c.slot(BeforeAuthentication, h)
	h = c.received(h, config)
	return c.slot(Outermost, h)
}

// permitted decides whether a known user may make a request, and records it.
func (c *chain) permitted(h http.Handler, config *genericapiserver.Config) http.Handler {
	h = c.open.allowed(c.withAnswers(withoutEnd(h, config.LongRunningFunc)), newInquiry(c, config))
	h = filterlatency.TrackCompleted(h)
	h = genericapifilters.WithAuthorization(h, c.lists.authorizer(config.Authorization.Authorizer), config.Serializer)
	h = c.lists.wrap(h, config.Serializer)
	h = timed(h, config, "authorization")
	if config.FlowControl != nil {
		work := flowcontrolrequest.DefaultWorkEstimatorConfig()
		estimator := c.weights.estimate(flowcontrolrequest.NewWorkEstimator(config.StorageObjectCountTracker.Get,
			config.FlowControl.GetInterestedWatchCount, work, config.FlowControl.GetMaxSeats),
			work.MaximumListSeatsLimit, config.FlowControl.GetMaxSeats)
		h = filterlatency.TrackCompleted(h)
		h = genericfilters.WithPriorityAndFairness(h, config.LongRunningFunc, config.FlowControl, estimator, config.RequestTimeout/4)
		h = timed(h, config, "priorityandfairness")
	} else {
		h = genericfilters.WithMaxInFlightLimit(h, config.MaxRequestsInFlight, config.MaxMutatingRequestsInFlight, config.LongRunningFunc)
	}
	h = filterlatency.TrackCompleted(h)
	h = impersonating(h, config)
	h = timed(h, config, "impersonation")
	h = c.slot(AfterAudit, h)
	h = filterlatency.TrackCompleted(h)
	h = c.recorder.awaited(genericapifilters.WithAudit(h, config.AuditBackend, config.AuditPolicyRuleEvaluator, config.LongRunningFunc))
	return timed(h, config, "audit")
}

// impersonating makes requests those of another user, if the user may do so.
func impersonating(h http.Handler, config *genericapiserver.Config) http.Handler {
	if config.FeatureGate.Enabled(genericfeatures.ConstrainedImpersonation) {
		return impersonation.WithConstrainedImpersonation(h, config.Authorization.Authorizer, config.Serializer)
	}
	return impersonation.WithImpersonation(h, config.Authorization.Authorizer, config.Serializer)
}

// authenticated identifies the caller.
func (c *chain) authenticated(h http.Handler, config *genericapiserver.Config) http.Handler {
	failed := unknownYet(genericapifilters.Unauthorized(config.Serializer), c.ready, config.Serializer)
	failed = genericapifilters.WithFailedAuthenticationAudit(failed, config.AuditBackend, config.AuditPolicyRuleEvaluator)
	failed = refuseFailures(failed, c.addresses, config.Serializer)
	failed = filterlatency.TrackCompleted(failed)
	// Without a tracer the filter only costs time, 2 % of a create.
	if c.tracing {
		h = genericapifilters.WithTracing(h, config.TracerProvider)
	}
	h = c.open.loggedIn(h)
	h = filterlatency.TrackCompleted(h)
	who := config.Authentication
	asked := quietFailures(c.limits.bounded(who.Authenticator), c.addresses)
	h = genericapifilters.WithAuthentication(h, asked, failed, who.APIAudiences, who.RequestHeaderConfig)
	h = c.open.received(h, config)
	return timed(h, config, "authentication")
}

// counted makes a stopping plane wait for requests and refuse new ones, except
// those of its own parts, which may serve a request that still runs. These are not
// counted: the request that they serve is.
func (c *chain) counted(uncounted, counted http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if signal.Closed(c.signals.draining) && loopback.From(r.Context()) {
			uncounted.ServeHTTP(w, r)
			return
		}
		counted.ServeHTTP(w, r)
	})
}

// received takes a request from the connection, limits it and parses it.
func (c *chain) received(h http.Handler, config *genericapiserver.Config) http.Handler {
	h = genericfilters.WithCORS(h, config.CorsAllowedOriginList, nil, nil, nil, "true")
	h = genericapifilters.WithWarningRecorder(h)
	h = first(h, func(h http.Handler) http.Handler {
		h = genericfilters.WithTimeoutForNonLongRunningRequests(withStack(h), config.LongRunningFunc)
		return genericapifilters.WithRequestDeadline(h, config.AuditBackend, config.AuditPolicyRuleEvaluator,
			config.LongRunningFunc, config.Serializer, config.RequestTimeout)
	})
	h = c.counted(h, genericfilters.WithWaitGroup(h, config.LongRunningFunc, config.NonLongRunningRequestWaitGroup))
	h = genericfilters.WithWatchTerminationDuringShutdown(h, c.signals, config.WatchRequestWaitGroup)
	h = first(h, func(h http.Handler) http.Handler { // about the answer and the connection
		if config.GoawayChance > 0 {
			h = genericfilters.WithProbabilisticGoaway(h, config.GoawayChance)
		}
		h = genericapifilters.WithCacheControl(h)
		h = genericfilters.WithHSTS(h, config.HSTSDirectives)
		if config.ShutdownSendRetryAfter {
			h = genericfilters.WithRetryAfter(h, c.signals.draining)
		}
		h = genericfilters.WithHTTPLogging(h)
		h = genericapifilters.WithLatencyTrackers(h)
		if config.FeatureGate.Enabled(genericfeatures.APIServingWithRoutine) {
			h = routine.WithRoutine(h, config.LongRunningFunc)
		}
		return withPace(h, c.limits.Answers.Stall, config.LongRunningFunc)
	})
	h = genericapifilters.WithRequestInfo(h, brief{config.RequestInfoResolver})
	h = genericapifilters.WithRequestReceivedTimestamp(h)
	h = genericapifilters.WithMuxAndDiscoveryComplete(h, c.signals.complete)
	h = withURLLimit(h, c.limits.URLBytes, config.Serializer)
	h = first(h, func(h http.Handler) http.Handler {
		return genericfilters.WithPanicRecovery(h, brief{config.RequestInfoResolver})
	})
	return withStack(genericapifilters.WithAuditInit(h))
}

// first has a filter see the requests that come to this server first, and not those that
// another one in the process hands on: it has done the same for them. All such filters are a
// tenth of what it takes to hand a get on and answer it.
func first(h http.Handler, filter func(http.Handler) http.Handler) http.Handler {
	filtered := filter(h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if vouched.IsHandedOn(r.Context()) {
			h.ServeHTTP(w, r)
			return
		}
		filtered.ServeHTTP(w, r)
	})
}

// timed begins to measure how long a filter takes.
func timed(h http.Handler, config *genericapiserver.Config, filter string) http.Handler {
	return first(h, func(h http.Handler) http.Handler { return filterlatency.TrackStarted(h, config.TracerProvider, filter) })
}

// withStack has the rest of a goroutine start with the stack it needs.
func withStack(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stack.Reserve()
		h.ServeHTTP(w, r)
	})
}
