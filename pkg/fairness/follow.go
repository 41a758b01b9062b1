package fairness

import (
	"context"
	"errors"
	"sync/atomic"

	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// FollowLimits are [Limits] that change while a plane runs. The function returns
// those of now. It is called by many requests at the same time, several times in
// each, so let it return what is in memory. Limits may appear, change and go:
//
//   - A new rate or burst applies to everybody from their next request on. It takes
//     back no request that is made: a user whose burst is used up waits at the new rate.
//   - Watches and requests that are open when a limit appears or gets lower count, and
//     stay. They count while there is no limit, too.
//   - Objects that are there stay, as with [Limits].
//
// Limits that Build would refuse, such as negative ones, are an error of Build. Later
// the last good ones stay in force, all of them, and the mistake is logged once. The
// plane keeps [controlplane.Plane.Feed] in any case, to count objects.
func FollowLimits(now func() Limits) controlplane.Part { return followed{now} }

// followed is the part.
type followed struct{ ask func() Limits }

// PartName implements the name errors use.
func (followed) PartName() string { return "fairness.FollowLimits" }

// Install declares what enforces all limits there are.
func (f followed) Install(p *controlplane.Plan) error {
	if f.ask == nil {
		return errors.New("the function is nil: give one that returns the limits")
	}
	p.Read(func() error {
		first := f.ask()
		if err := first.check(); err != nil {
			return err
		}
		k := &lastGood{ask: f.ask}
		k.good.Store(&first)
		Defaults().enforce(p, k.now) // has every limit
		return nil
	})
	return nil
}

// lastGood asks for limits, and knows the last ones that were good.
type lastGood struct {
	ask  func() Limits
	good atomic.Pointer[Limits]
	told atomic.Pointer[string] // the error that was logged; nil: all is well
}

// now returns what the function does, or the last good limits.
func (k *lastGood) now(ctx context.Context) Limits {
	next, good := k.ask(), k.good.Load()
	if next == *good && k.told.Load() == nil {
		return next
	}
	if err := next.check(); err != nil {
		text := err.Error()
		if told := k.told.Swap(&text); told == nil || *told != text {
			klog.FromContext(ctx).Error(err, "Kept the previous limits for users")
		}
		return *good
	}
	kept := next // so that only this line allocates
	k.good.Store(&kept)
	k.told.Store(nil)
	return next
}
