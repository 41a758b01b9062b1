package controlplane

import (
	"context"
	"errors"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sailplane-dev/sailplane/pkg/internal/election"
	"github.com/sailplane-dev/sailplane/pkg/internal/metrics"
)

// checkElected requires that Leases are served where servers elect by them.
func (p *Plan) checkElected(storage Storage) error {
	if storage == nil || !storage.Traits().Shared || p.Serves(coordinationv1.SchemeGroupVersion.WithKind("Lease")) {
		return nil
	}
	for _, w := range p.work {
		if w.value.Elected {
			return w.failed(errors.New("the storage is shared, but no part serves Leases for leader election: add coordination.Leases{}"))
		}
	}
	return nil
}

// elect wraps work to run only while this process holds the Lease of its name.
func (p *Plane) elect(name string, work WorkFunc) WorkFunc {
	return func(ctx context.Context, _ *Plane) error {
		select { // the namespace of the Lease exists when the plane is ready
		case <-p.ready:
		case <-ctx.Done():
			return nil
		}
		identity, lease := p.host.server.identity, p.host.server.built.name+"-"+name
		leases := p.client.CoordinationV1().Leases(metav1.NamespaceSystem)
		held := election.New(leases, lease, identity, func(ctx context.Context) (election.Term, error) {
			return p.stores.BeginTerm(ctx, lease, identity)
		})
		begin, end := metrics.Elected(lease)
		for ctx.Err() == nil {
			err := held.Hold(ctx, func(ctx context.Context) error {
				begin()
				defer end()
				return work(ctx, p)
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
}
