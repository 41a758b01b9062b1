package controlplane

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/component-base/tracing"

	"github.com/sailplane-dev/sailplane/pkg/feed"
	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
	"github.com/sailplane-dev/sailplane/pkg/internal/store"
	"github.com/sailplane-dev/sailplane/pkg/internal/turns"
)

// host is what the planes of a running server share, and the planes beside the root
// plane.
type host struct {
	server  *Server
	log     logr.Logger
	plan    *ServerPlan
	address string // the host and port that clients reach the server at
	backend *store.Backend
	stats   *storageStats
	answers *budget                // nil if nothing limits it
	turns   *turns.Line            // nil if nothing limits it
	tracer  tracing.TracerProvider // nil if no part has one
	// stored are the health checks of the storage and of what transforms stored
	// values, and living those that fail when only a restart helps.
	stored, living []healthz.HealthChecker

	mu      sync.Mutex
	hub     *feed.Hub // nil while no plane has a feed
	endHub  func()
	root    *Plane
	planes  map[string]*Plane // the others, by name
	closing chan struct{}     // closed when no plane is added any more
	adding  sync.WaitGroup
}

// feed is a new feed of a plane. The first one begins to follow the storage.
func (h *host) feed(ctx context.Context, plane string) (*feed.Feed, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hub == nil {
		client, err := h.backend.Client()
		if err != nil {
			return nil, fmt.Errorf("storage client for the feed of objects: %w", err)
		}
		h.hub = feed.NewHub(client, h.backend.Prefix, h.backend.Transformers)
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		done := background(func() { h.hub.Run(ctx) })
		h.endHub = func() { cancel(); <-done }
	}
	return h.hub.Feed(plane), nil
}

// followed is the hub, nil if no plane has a feed.
func (h *host) followed() *feed.Hub {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hub
}

// add starts a plane, and returns when it is ready.
func (h *host) add(ctx context.Context, name string, parts []Part) (*Plane, error) {
	plan, err := h.plan.further(parts)
	if err = errors.Join(err, plan.check(h.server.built.storage), checkPlaneName(name)); err != nil {
		return nil, err
	}
	p := prepare(h, plan, name, newInside(h.server.built.name))
	if err := h.enter(p); err != nil {
		return nil, err
	}
	defer h.adding.Done()
	life := context.WithoutCancel(ctx)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-h.closing:
			cancel(errServerStops)
		case <-ctx.Done():
		}
	}()
	if err = p.build(); err == nil {
		p.gate.open(p.top.Handler)
		err = p.start(ctx, life, nil, p.endWith)
	}
	if err != nil {
		return nil, errors.Join(err, p.Stop(life))
	}
	return p, nil
}

var errServerStops = errors.New("the server is stopping")

// enter registers a plane that is about to start.
func (h *host) enter(p *Plane) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if signal.Closed(h.closing) {
		return errServerStops
	}
	if h.planes[p.space] != nil {
		return errors.New("a plane with that name is running: stop it before you start it again")
	}
	h.planes[p.space] = p
	h.adding.Add(1)
	return nil
}

func (h *host) leave(p *Plane) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.planes, p.space)
}

// others are the planes beside the root plane, by name.
func (h *host) others() []*Plane {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []*Plane
	for _, name := range slices.Sorted(maps.Keys(h.planes)) {
		all = append(all, h.planes[name])
	}
	return all
}

// stop stops the planes beside the root plane, all at once.
func (h *host) stop(ctx context.Context) error {
	h.mu.Lock()
	close(h.closing)
	h.mu.Unlock()
	h.adding.Wait()
	planes := h.others()
	var stopping sync.WaitGroup
	errs := make([]error, len(planes))
	for i, p := range planes {
		stopping.Go(func() {
			if err := p.Stop(ctx); err != nil {
				errs[i] = fmt.Errorf("plane %q: %w", p.space, err)
			}
		})
	}
	stopping.Wait()
	return errors.Join(errs...)
}

// checkPlaneName requires a name that can be part of a key and of a host name.
func checkPlaneName(name string) error {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return fmt.Errorf("name %q: %s", name, strings.Join(problems, ", "))
	}
	return nil
}
