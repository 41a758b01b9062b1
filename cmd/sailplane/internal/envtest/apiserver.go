package envtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/server"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// run serves until the context ends.
func (s *apiServer) run(ctx context.Context, log io.Writer) (err error) {
	// Some parts refuse files that every user may read, and suites write files
	// with any mode: copies go here.
	if err := os.MkdirAll(s.certDir, 0o700); err != nil {
		return fmt.Errorf("--cert-dir: %w", err)
	}
	private, err := os.MkdirTemp(s.certDir, "private-")
	if err != nil {
		return fmt.Errorf("--cert-dir: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(private)) }()
	c, d, err := s.configured(files{dir: private}, log)
	if err != nil {
		return err
	}
	ctx = s.log(ctx, log, c.Log)
	b, storage, err := server.Builder(apiServerName, server.NewLive(c, false), d.At)
	if err != nil {
		return err
	}
	services, err := s.services(c)
	if err != nil {
		return err
	}
	running, err := b.Storage(exclusive{storage}).
		With(services, controlplane.PartFunc(tolerateFinalized), controlplane.ServerPartFunc(healthyWhenReady)).
		Build()
	if err != nil {
		return err
	}
	return bounded(ctx, running.Run)
}

// bounded runs until the context ends, and for a limited time longer: without its
// etcd, a server would wait for answers that never come. The process ends then,
// with all that still runs.
func bounded(ctx context.Context, run func(context.Context) error) error {
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(stopTimeout):
		return fmt.Errorf("the server did not stop within %v: is etcd gone?", stopTimeout)
	}
}

// warnings logs which values of known flags have no effect.
func (s *apiServer) warnings(log io.Writer) {
	if s.storageBackend != "etcd3" {
		warn(log, "--storage-backend %s is not supported: use etcd3", s.storageBackend)
	}
	if !s.privileged {
		warn(log, "--allow-privileged=false is not supported: privileged containers are always allowed")
	}
	known := utilfeature.DefaultMutableFeatureGate.DeepCopy().GetAll()
	for _, feature := range s.features {
		name, value, _ := strings.Cut(feature, "=")
		want, err := strconv.ParseBool(value)
		spec, isKnown := known[featuregate.Feature(name)]
		if err != nil || !isKnown || spec.Default != want {
			warn(log, "--feature-gates %s has no effect: feature gates keep their defaults", feature)
		}
	}
}

// healthyWhenReady has /healthz, which envtest waits for, fail until the server
// has started completely.
func healthyWhenReady(p *controlplane.ServerPlan) error {
	var ready atomic.Bool
	p.EachPlane(func(p *controlplane.Plan) {
		p.Check(healthz.NamedCheck("ready", func(*http.Request) error {
			if !ready.Load() {
				return errors.New("the server is starting")
			}
			return nil
		}))
	})
	p.Work(controlplane.Work{Name: "healthy", Start: func(context.Context, *controlplane.Plane) error {
		ready.Store(true)
		return nil
	}})
	return nil
}

// exclusive is a cluster that only this process uses, as envtest starts one for each
// API server: nothing waits for replicas, or for leader election.
type exclusive struct{ controlplane.Storage }

// Traits implements controlplane.Storage.
func (s exclusive) Traits() controlplane.Traits {
	traits := s.Storage.Traits()
	traits.Shared, traits.CheapProgress = false, true
	return traits
}
