// Package coordination has the resources of the group coordination.k8s.io (v1)
// that a control plane without nodes needs:
//
//   - [Leases], by which controllers elect a leader
package coordination

import (
	"context"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// Leases is the part that serves leases (coordination.k8s.io/v1). Coordinated
// leader election (KEP 4355) is off, as it is in Kubernetes by default: the
// fields strategy and preferredHolder are dropped.
type Leases struct{}

// Install adds leases to the group.
func (Leases) Install(p *controlplane.Plan) error { return shared().Install(p) }

// shared is the group, made once per process: its scheme and definitions are
// the same for every plane.
var shared = sync.OnceValue(func() *apis.Group {
	return apis.NewGroup(coordinationv1.SchemeGroupVersion, coordinationv1.AddToScheme, leaseDefinitions, leases())
})

func leases() *apis.Definition {
	return apis.Resource[coordinationv1.Lease, coordinationv1.LeaseList]("leases",
		apis.NoGeneration(),
		apis.CreateOnUpdate(),
		apis.Drop(func(l, _ *coordinationv1.Lease) { dropCoordinated(l) }),
		apis.Validate(validate),
		apis.Columns(func(l *coordinationv1.Lease) []any {
			return []any{ptr.Deref(l.Spec.HolderIdentity, "")}
		}, metav1.TableColumnDefinition{
			Name: "Holder", Type: "string", Description: coordinationv1.LeaseSpec{}.SwaggerDoc()["holderIdentity"],
		}),
	)
}

func dropCoordinated(l *coordinationv1.Lease) {
	l.Spec.Strategy, l.Spec.PreferredHolder = nil, nil
}

func validate(_ context.Context, l *coordinationv1.Lease) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	if d := l.Spec.LeaseDurationSeconds; d != nil && *d <= 0 {
		errs = append(errs, field.Invalid(spec.Child("leaseDurationSeconds"), *d, "must be greater than 0"))
	}
	if n := l.Spec.LeaseTransitions; n != nil && *n < 0 {
		errs = append(errs, field.Invalid(spec.Child("leaseTransitions"), *n, "must be greater than or equal to 0"))
	}
	return errs
}
