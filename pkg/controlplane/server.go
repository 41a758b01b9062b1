package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/internal/loopback"
	"github.com/sailplane-dev/sailplane/pkg/internal/metrics"
)

// Server is a listener, a storage and one root plane. It runs once.
type Server struct {
	built   Builder
	started atomic.Bool
	ready   chan struct{}
	handler atomic.Pointer[http.Handler]
	door    *loopback.Transport

	mu      sync.Mutex
	address net.Addr
	token   string
}

func newServer(b Builder) *Server {
	return &Server{
		built: b,
		ready: make(chan struct{}), door: &loopback.Transport{}, token: newToken(),
	}
}

// Ready is closed when the storage is reachable, the namespaces the parts
// promise exist, the watch caches of resources with less than 1,000 objects are
// filled, and the CRDs given at start are established. It is never closed when
// Run returns an error first: wait for both.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// ClientConfig is a client configuration with all rights that reaches the
// server in-process: no socket, no TLS. Requests before the server serves fail.
func (s *Server) ClientConfig() *rest.Config { return loopbackConfig(s.built.name, s.door, s.token) }

// Address is where the server listens, with the port that was picked; nil
// before that and when it does not listen.
func (s *Server) Address() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.address
}

// Handler serves the API with authentication and authorization, to be mounted
// at the root of a host in another server. Until the server serves it answers 503.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := s.handler.Load(); h != nil {
			(*h).ServeHTTP(w, r)
			return
		}
		w.Header().Set("Retry-After", "1")
		http.Error(w, "the server is not serving: it has not started or has stopped", http.StatusServiceUnavailable)
	})
}

// drainTimeout bounds how long a stopping server waits for running requests. It
// is the longest a request that is no watch may take.
const drainTimeout = 60 * time.Second

// Run serves until the context ends, then drains requests, ends watches, stops
// every goroutine, and last the storage. It returns nil after an orderly stop,
// and may be called once.
func (s *Server) Run(parent context.Context) (err error) {
	if s.started.Swap(true) {
		return errors.New("the server was run before: build another")
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	defer context.AfterFunc(parent, func() { cancel(askedError{}) })()
	r := &run{server: s, begun: time.Now(), fail: cancel}
	// What the server runs outlives the signal to stop, so that it stops in order.
	life := context.WithoutCancel(parent)
	if err = r.start(ctx, life); err == nil {
		<-ctx.Done()
	}
	if cause := context.Cause(ctx); errors.Is(cause, askedError{}) {
		err = nil // whatever a start that was interrupted says
	} else if cause != nil {
		err = cause
	}
	return errors.Join(err, r.stop(life))
}

// askedError is why a server stops in the normal case: its context ended.
type askedError struct{}

func (askedError) Error() string { return "the context of Run ended" }

// run is one life of a server: what was started, to be stopped in reverse.
type run struct {
	server *Server
	begun  time.Time
	fail   context.CancelCauseFunc
	undo   []func(context.Context) error
}

// onStop registers what stop does, last first.
func (r *run) onStop(f func(context.Context) error) { r.undo = append(r.undo, f) }

func (r *run) stop(ctx context.Context) error {
	var errs []error
	for i := len(r.undo) - 1; i >= 0; i-- {
		errs = append(errs, r.undo[i](ctx))
	}
	return errors.Join(errs...)
}

// start brings the server up in phases; what a phase started is undone by stop.
func (r *run) start(ctx, life context.Context) error {
	s, log := r.server, klog.FromContext(ctx)
	listener, err := r.bind(ctx)
	if err != nil {
		return err
	}
	plan := &Plan{}
	if err := plan.install(s.built.parts); err != nil {
		return err
	}
	config, err := r.identify(ctx, plan, listener)
	if err != nil {
		return err
	}
	opened, err := r.openStorage(ctx)
	if err != nil {
		return err
	}
	backend := opened.backend
	log.V(1).Info("Started", "phase", "storage", "ms", time.Since(r.begun).Milliseconds())

	shared := &shared{external: externalAddress(listener), documents: documentCaches().of(plan), door: s.door, token: s.token}
	if err := r.transform(life, plan, backend, shared); err != nil {
		return err
	}
	shared.stored = slices.Concat(shared.stored, opened.health.Checks())
	shared.living = opened.living
	phase := time.Now()
	plane, err := newPlane(s.built.name, plan, backend, shared)
	if err != nil {
		return err
	}
	r.onStop(func(context.Context) error { return plane.stop() })
	log.V(1).Info("Started", "phase", "plane", "ms", time.Since(phase).Milliseconds())
	handler := http.Handler(plane.top.Handler)
	s.handler.Store(&handler)
	r.onStop(func(context.Context) error { s.handler.Store(nil); return nil })
	if listener != nil {
		r.serve(listener, httpServer(handler, config))
	}
	r.onStop(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, drainTimeout)
		defer cancel()
		return plane.drain(ctx)
	})
	if err := plane.start(ctx, life, r.fail); err != nil {
		return err
	}
	stopReport := metrics.Report(opened.engine, opened.figures(plane.feed).ask)
	r.onStop(func(context.Context) error { stopReport(); return nil })
	for _, f := range plan.ready {
		if err := f.value(ctx, s.Address()); err != nil {
			return fmt.Errorf("part %q: %s: %w", f.part, f.name, err)
		}
	}
	log.V(1).Info("Ready", "server", s.built.name, "ms", time.Since(r.begun).Milliseconds())
	close(s.ready)
	backend.Fill()
	return nil
}
