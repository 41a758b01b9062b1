package envtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/builtin/admissionregistration"
	"github.com/sailplane-dev/sailplane/pkg/builtin/authentication"
	"github.com/sailplane-dev/sailplane/pkg/builtin/authorization"
	"github.com/sailplane-dev/sailplane/pkg/builtin/certificates"
	"github.com/sailplane-dev/sailplane/pkg/builtin/coordination"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/builtin/endpoints"
	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
	"github.com/sailplane-dev/sailplane/pkg/builtin/rbac"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/encryption"
	"github.com/sailplane-dev/sailplane/pkg/fairness"
	"github.com/sailplane-dev/sailplane/pkg/lifecycle"
)

// run serves until the context ends.
func (s *apiServer) run(ctx context.Context, log io.Writer) (err error) {
	ctx = s.log(ctx, log, s.verbosity)
	if len(s.etcd.Endpoints) == 0 {
		return errors.New("--etcd-servers is empty: name one, such as http://127.0.0.1:2379")
	}
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
	parts, err := s.parts(files{dir: private}, log)
	if err != nil {
		return err
	}
	server, err := controlplane.New(apiServerName).
		Listen(net.JoinHostPort(s.address, strconv.Itoa(s.port))).
		Storage(exclusive{s.etcd}).
		Prefix("/" + strings.Trim(s.etcdPrefix, "/")).
		With(parts...).
		Build()
	if err != nil {
		return err
	}
	return bounded(ctx, server.Run)
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

// parts returns the parts of the server, as the flags say.
func (s *apiServer) parts(private files, log io.Writer) ([]controlplane.Part, error) {
	s.warnings(log)
	access, err := s.accessParts(private, log)
	if err != nil {
		return nil, err
	}
	services, err := s.services()
	if err != nil {
		return nil, err
	}
	parts := access
	parts = append(parts,
		rbac.All(),
		core.Namespaces{}, core.ConfigMaps{}, core.Secrets{}, core.ServiceAccounts{}, core.Endpoints{},
		core.Events{}, core.ResourceQuotas{}, core.LimitRanges{},
		coordination.Leases{}, endpoints.EndpointSlices{},
		certificates.CertificateSigningRequests{}, certificates.ClusterTrustBundles{}, certificates.PodCertificateRequests{},
		authentication.TokenReviews{}, authentication.SelfSubjectReviews{}, authorization.All(),
		admissionregistration.All(), kube.All(),
		controlplane.PartFunc(tolerateFinalized),
		controlplane.ServerPartFunc(healthyWhenReady),
		crd.Definitions{}, aggregator.APIServices{},
		services,
	)
	parts = append(parts, s.admission(log)...)
	if s.garbage {
		parts = append(parts, lifecycle.GarbageCollection{})
	}
	if s.fairness {
		parts = append(parts, fairness.PriorityAndFairness{Concurrency: s.requests + s.mutating})
	}
	if s.audit.Path != "" && s.audit.PolicyFile != "" {
		parts = append(parts, s.audit)
	}
	if s.encryption != "" {
		file, err := private.copy("encryption", s.encryption)
		if err != nil {
			return nil, fmt.Errorf("--encryption-provider-config: %w", err)
		}
		parts = append(parts, encryption.AtRest{ConfigFile: file})
	}
	return parts, nil
}

// warnings logs which values of known flags have no effect.
func (s *apiServer) warnings(log io.Writer) {
	if s.storageBackend != "etcd3" {
		warn(log, "--storage-backend %s is not supported: use etcd3", s.storageBackend)
	}
	if !s.privileged {
		warn(log, "--allow-privileged=false is not supported: privileged containers are always allowed")
	}
	if s.audit.Path != "" && s.audit.PolicyFile == "" {
		warn(log, "--audit-log-path has no effect without --audit-policy-file")
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

// has tells whether a list of a flag has the name.
func has(list []string, name string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.TrimSpace(s) == name })
}
