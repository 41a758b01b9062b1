package controlplane

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/google/uuid"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// How long a Lease lasts, how long its holder tries to renew it before the work
// stops, and the pause between tries. A takeover takes at most the first and the
// last together.
const (
	leaseDuration = 10 * time.Second
	leaseRenewal  = 7 * time.Second
	leaseRetry    = 2 * time.Second
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
		host, _ := os.Hostname() // only part of a name
		lock := &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: p.host.server.built.name + "-" + name},
			Client:     p.client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + uuid.NewString()},
		}
		for ctx.Err() == nil {
			if err := p.holdLease(ctx, lock, work); err != nil {
				return err
			}
		}
		return nil
	}
}

// holdLease waits for the Lease, works, and returns when the Lease is lost or the
// context ends, and the work with it. It does not release the Lease: a request of
// the work may still be under way.
func (p *Plane) holdLease(ctx context.Context, lock *resourcelock.LeaseLock, work WorkFunc) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The elector calls OnStartedLeading in a goroutine that it does not wait for.
	leading, over := make(chan context.Context, 1), make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: leaseDuration, RenewDeadline: leaseRenewal, RetryPeriod: leaseRetry,
		Name: lock.LeaseMeta.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { leading <- ctx },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return err
	}
	worked := background(func() {
		select {
		case ctx := <-leading:
			klog.FromContext(ctx).Info("Acquired the Lease", "lease", lock.LeaseMeta.Name, "identity", lock.Identity())
			if err := work(ctx, p); err != nil && ctx.Err() == nil {
				cancel(err)
			}
		case <-over:
		}
	})
	elector.Run(ctx)
	close(over)
	<-worked
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}
