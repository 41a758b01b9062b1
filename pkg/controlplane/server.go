package controlplane

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/internal/addresses"
	"github.com/sailplane-dev/sailplane/pkg/internal/loopback"
	"github.com/sailplane-dev/sailplane/pkg/internal/metrics"
	"github.com/sailplane-dev/sailplane/pkg/internal/upstream"
)

// Server is a listener, an identity, a storage and a root plane, to which others may
// be added while it runs. It runs once.
type Server struct {
	built    Builder
	identity string // tells it from other servers on the same storage
	started  atomic.Bool
	ready    chan struct{}
	loopback *loopbackAccess // of the root plane
	gate     *gate           // of the root plane
	// addresses are what clients take before they are known, in all planes.
	addresses *addresses.Table

	mu      sync.Mutex
	address net.Addr
	// authority signed the certificate of the listener; nil if it is not known.
	authority dynamiccertificates.CAContentProvider
	// clients signed the certificates of clients; nil if nobody's are known.
	clients dynamiccertificates.CAContentProvider
	host    *host // nil before planes can be added
}

func newServer(b Builder) *Server {
	host, _ := os.Hostname() // only part of a name
	return &Server{
		built: b, identity: host + "_" + uuid.NewString(), ready: make(chan struct{}),
		loopback: newInside(b.name), gate: &gate{}, addresses: b.limits.Addresses.table(),
	}
}

// loopbackAccess is how clients in the process reach a plane, with all rights.
type loopbackAccess struct {
	transport *loopback.Transport
	config    *rest.Config
}

func newInside(name string) *loopbackAccess {
	in := &loopbackAccess{transport: &loopback.Transport{}}
	in.config = &rest.Config{
		Host: "http://loopback", Transport: in.transport, BearerToken: rand.Text(), // 130 bits
		UserAgent: "sailplane/" + name, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON},
	}
	return in
}

// Name is the name that the server was given.
func (s *Server) Name() string { return s.built.name }

// Ready is closed when the storage is reachable, the namespaces the parts
// promise exist, and the CRDs given at start are established. It is never closed
// when Run returns an error first: wait for both.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// ClientConfig is a client configuration with all rights that reaches the
// server in-process: no socket, no TLS. Requests before the server serves fail.
func (s *Server) ClientConfig() *rest.Config { return rest.CopyConfig(s.loopback.config) }

// Address is where the server listens, with the port that was picked; nil
// before that and when it does not listen.
func (s *Server) Address() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.address
}

// Authority has the CA certificates by which clients know the server, where a part
// makes them, as authn.Admin does. It is nil before the server listens, when it
// does not, and when the server does not know the CA of its certificate.
func (s *Server) Authority() dynamiccertificates.CAContentProvider {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.authority
}

// ClientAuthority has the CA certificates of clients' certificates, where parts declare some.
// It is nil before the server listens, and when it does not.
func (s *Server) ClientAuthority() dynamiccertificates.CAContentProvider {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clients
}

// Handler serves the API with authentication and authorization, to be mounted
// at the root of a host in another server. Until the server serves it answers 503.
func (s *Server) Handler() http.Handler { return s.gate }

// Plane adds a plane to a running server: one more complete API, made of parts,
// with objects, users and rules of its own. It has what the server's parts bring to
// each plane, and nothing of the root plane's parts. It returns when the plane is
// ready. The context bounds the start; the plane lives until it is stopped, by
// itself or with the server.
//
// The name, a DNS label, is the plane's place in the storage: a plane that is
// started again under the name has the objects that it had. Requests reach the plane
// by [Plane.Config] and [Plane.Handler].
func (s *Server) Plane(ctx context.Context, name string, parts ...Part) (*Plane, error) {
	h := s.running()
	if h == nil {
		return nil, fmt.Errorf("plane %q: the server is not running: wait for Ready", name)
	}
	p, err := h.add(ctx, name, parts)
	if err != nil {
		return nil, fmt.Errorf("plane %q: %w", name, err)
	}
	return p, nil
}

// Planes are the planes beside the root plane, by name, including those that start or
// stop.
func (s *Server) Planes() []*Plane {
	if h := s.running(); h != nil {
		return h.others()
	}
	return nil
}

// running is what the planes share; nil before planes can be added.
func (s *Server) running() *host {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.host
}

// requestTimeout is the longest a request that is no watch may take, as upstream has
// it.
const requestTimeout = 60 * time.Second

// defaultDrain is how long a stopping server waits for running requests.
const defaultDrain = requestTimeout

// Run serves until the context ends, then drains requests, ends watches, stops
// every goroutine, and last the storage. It returns nil after an orderly stop,
// and may be called once.
func (s *Server) Run(parent context.Context) (err error) {
	if s.started.Swap(true) {
		return errors.New("Run was called before: build another server")
	}
	r := &run{server: s, begun: time.Now(), log: s.logger(parent)}
	parent = klog.NewContext(parent, forLibraries(parent, r.log))
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	defer context.AfterFunc(parent, func() { cancel(askedError{}) })()
	r.fail = cancel
	// What the server runs outlives the signal to stop, so that it stops in order.
	life := context.WithoutCancel(parent)
	if err = r.start(ctx, life); err == nil {
		<-ctx.Done()
	}
	if cause := context.Cause(ctx); errors.Is(cause, askedError{}) {
		err = nil // ignore the error of a start that was interrupted
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
	log    *slog.Logger
	begun  time.Time
	fail   context.CancelCauseFunc
	undo   []func(context.Context) error
}

// onStop registers a function that stop calls, the last one first.
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
	plan := newServerPlan()
	if err := plan.install(s.built.parts); err != nil {
		return err
	}
	opened, err := r.openStorage(ctx)
	if err != nil {
		return err
	}
	if err := r.share(ctx, plan, opened); err != nil {
		return err
	}
	config, err := r.identify(ctx, plan, listener)
	if err != nil {
		return err
	}
	log.V(1).Info("Started", "phase", "storage", "ms", time.Since(r.begun).Milliseconds())
	h, err := r.host(life, plan, listener, opened)
	if err != nil {
		return err
	}
	phase := time.Now()
	root := prepare(h, plan.root, "", s.loopback)
	root.gate = s.gate
	if err := root.build(); err != nil {
		return err
	}
	r.onStop(func(context.Context) error { return root.stop() })
	log.V(1).Info("Started", "phase", "plane", "ms", time.Since(phase).Milliseconds())
	s.gate.open(root.top.Handler)
	r.onStop(func(context.Context) error { s.gate.close(); return nil })
	if listener != nil {
		serving := httpServer(root.top.Handler, config, s.built.limits)
		requests := klog.NewContext(context.Background(), log)
		serving.BaseContext = func(net.Listener) context.Context { return requests }
		r.serve(listener, serving, plan.connections)
	}
	r.onStop(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, s.built.drain)
		defer cancel()
		return root.drain(ctx)
	})
	h.root = root
	s.mu.Lock()
	s.host = h
	s.mu.Unlock()
	r.onStop(h.stop)
	work := append([]named[Work]{{"the server", "presence", Work{Run: s.present}}}, plan.work...)
	if err := root.start(ctx, life, work, r.fail); err != nil {
		return err
	}
	stopReport := metrics.Report(opened.engine, h.stats.ask)
	r.onStop(func(context.Context) error { stopReport(); return nil })
	r.sayReady(ctx)
	close(s.ready)
	return nil
}

// host starts what all planes need besides the storage.
func (r *run) host(life context.Context, plan *ServerPlan, listener net.Listener, o *openStorage) (*host, error) {
	upstream.LeanTables()
	h := &host{
		server: r.server, log: klog.FromContext(life), plan: plan, address: "localhost:443", backend: o.backend,
		stored: o.health.Checks(), living: o.living, answers: newBudget(r.server.built.limits.Answers),
		turns:  newTurns(r.server.built.limits.LargeRequests),
		planes: map[string]*Plane{}, closing: make(chan struct{}),
	}
	h.turns.Tell(func(computing bool) {
		for _, tell := range plan.large {
			tell(computing)
		}
	})
	h.stats = o.stats(h)
	if listener != nil {
		h.address = listener.Addr().String()
	}
	if err := r.transform(life, h); err != nil {
		return nil, err
	}
	if err := r.trace(h); err != nil {
		return nil, err
	}
	r.onStop(func(context.Context) error {
		if h.endHub != nil {
			h.endHub()
		}
		return nil
	})
	return h, nil
}
