package fairness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// Limits are fixed limits, the same for every user: the one who logged in, not
// the one that is impersonated. An empty field limits nothing. [Defaults] returns
// those of sailplane serve; [FollowLimits] has them change while a plane runs.
//
// The service accounts of a namespace (system:serviceaccount:NAMESPACE:NAME) are
// limited together as well, to NamespaceFactor times what one user may: whoever
// creates accounts gets no further than that. So are the writes into a namespace,
// whoever makes them; only those that authorization allowed count there.
//
// A refusal names the limit and its value: with 413 when an object is too large,
// with 429 and Retry-After otherwise. Clients built on client-go obey Retry-After
// up to ten times. The server itself and its ClientConfig have no limits. Group
// system:masters has only ObjectBytes, as it is exempt from priority and fairness, so
// that an administrator always gets in. Refused requests are audited; requests of
// unknown callers are refused before. Metric sailplane_limits_exceeded_total counts.
type Limits struct {
	// Mode says what happens to requests over a limit. Empty: Enforce.
	Mode Mode
	// RequestsPerSecond is how many requests a user may make on average. A watch
	// is one request. A namespace gets NamespaceFactor times as many, for its
	// accounts and for writes into it.
	RequestsPerSecond float64
	// Burst is how many of them may come at once. Empty: as many as in a second,
	// and at least one.
	Burst int
	// WriteBytesPerSecond is how many bytes a user may have stored on average: the
	// sizes of the objects that a create, an update or a patch stores, whole, as
	// they are in the storage. A namespace gets NamespaceFactor times as many, for its
	// accounts and for writes into it.
	WriteBytesPerSecond int
	// WriteBurstBytes is how many of them may come at once. Empty: as many as in a
	// second. An object that is larger waits until all of it is there.
	WriteBurstBytes int
	// ObjectBytes is the largest object that is stored, as it is in the storage:
	// JSON, or protobuf for most resources of Kubernetes, with everything that the
	// server adds, and encrypted. An object that was larger before may still shrink. No
	// storage takes more than 1.5 MiB.
	ObjectBytes int
	// ObjectsPerResource is how many objects of a resource there may be in each
	// namespace; for a cluster-scoped one, in all. Objects that are created at
	// the same time may together pass the limit.
	ObjectsPerResource int
	// StoredBytesPerNamespace is how much the objects of a namespace may take in the
	// storage, keys included, without history; those without a namespace together have
	// the same limit. An update counts by how much the
	// object grows. What a delete adds to an object is never refused, nor are up to
	// 1 KiB that a write adds to an object that is being deleted.
	StoredBytesPerNamespace int
	// StoredBytesPerUser is how much the objects that a user created may take in the
	// storage, wherever they are and whoever enlarges them. Objects do not say who created
	// them, so those from before the server started count for nobody. The accounts of a
	// namespace get NamespaceFactor times as much. An update counts, and is never refused,
	// as with StoredBytesPerNamespace.
	StoredBytesPerUser int
	// WatchesPerUser is how many watches a user may have open. The accounts of a
	// namespace get NamespaceFactor times as many.
	WatchesPerUser int
	// RequestsAtOncePerUser is how many requests of a user may run at the same
	// time; watches, which run long, do not count. A request runs from its header
	// to its answer: one whose body comes slowly counts until all of it has
	// arrived. The accounts of a namespace get NamespaceFactor times as many.
	RequestsAtOncePerUser int
	// NamespaceFactor is how many times what a user may a namespace may. Empty: 4.
	NamespaceFactor int
}

// Mode says what happens to requests over a limit.
type Mode string

// The modes of [Limits].
const (
	// Enforce refuses them.
	Enforce Mode = "enforce"
	// Warn refuses nothing. Once a minute for each caller and limit it logs what Enforce
	// would have refused.
	Warn Mode = "warn"
	// Off measures nothing.
	Off Mode = "off"
)

// Defaults are the limits of sailplane serve. They are far above what honest clients
// do: an apply of thousands of objects, informers of every resource, controllers that
// limit themselves to 20 requests per second, or a Helm release of 1 MiB.
func Defaults() Limits {
	return Limits{
		RequestsPerSecond: 500, Burst: 10_000,
		WriteBytesPerSecond: 8 << 20, WriteBurstBytes: 256 << 20,
		ObjectBytes: 3 << 19, ObjectsPerResource: 100_000, StoredBytesPerNamespace: 1 << 30, StoredBytesPerUser: 2 << 30,
		WatchesPerUser: 10_000, RequestsAtOncePerUser: 200,
		NamespaceFactor: defaultFactor,
	}
}

// defaultFactor is NamespaceFactor when it is empty.
const defaultFactor = 4

// PartName implements the name errors use.
func (Limits) PartName() string { return "fairness.Limits" }

// Install declares the middleware and the guards of the limits.
func (l Limits) Install(p *controlplane.Plan) error {
	if err := l.check(); err != nil {
		return err
	}
	if l.Mode == Off || l == (Limits{}) {
		return nil
	}
	l.enforce(p, l.always)
	return nil
}

// always are the limits of a plane that does not change them.
func (l Limits) always(context.Context) Limits { return l }

// current returns the limits that a request has, by its context. They are valid.
type current func(context.Context) Limits

// effective are limits that are empty while they are off.
func (now current) effective(ctx context.Context) Limits {
	l := now(ctx)
	if l.Mode == Off {
		return Limits{}
	}
	return l
}

// enforce declares what enforces the limits that are set here, with the values that
// they currently have.
func (l Limits) enforce(p *controlplane.Plan, now current) {
	j := newJudge()
	now = now.effective
	p.Wrap(controlplane.AfterAudit, "callers", identify)
	w := &written{now: now, judge: j, bytes: newRates()}
	if l.StoredBytesPerUser > 0 {
		w.made = newCreators()
		p.Admit("creators", w.made)
	}
	if l.RequestsPerSecond > 0 {
		r := &requestRates{now: now, judge: j, rates: newRates()}
		p.Wrap(controlplane.AfterAudit, "requests per second", r.ofCallers)
		p.Wrap(controlplane.Innermost, "writes per second of a namespace", r.ofNamespaces)
	}
	if l.WatchesPerUser > 0 {
		p.Wrap(controlplane.AfterAudit, "watches per user", newWatches(now, j).wrap)
	}
	if l.RequestsAtOncePerUser > 0 {
		p.Wrap(controlplane.AfterAudit, "requests at once per user", newRequests(now, j).wrap)
	}
	if l.WriteBytesPerSecond > 0 {
		p.Wrap(controlplane.AfterAudit, "bytes written per second", w.early)
	}
	n := &number{now: now, judge: j}
	if l.ObjectsPerResource > 0 {
		p.Admit("objects per resource", n)
	}
	stored := l.StoredBytesPerNamespace > 0 || l.StoredBytesPerUser > 0
	if l.WriteBytesPerSecond > 0 || l.ObjectBytes > 0 || stored {
		p.Guard("bytes", w.guard)
	}
	if l.ObjectsPerResource > 0 || l.ObjectBytes > 0 || stored {
		p.Feed()
		p.Work(controlplane.Work{Name: "what is stored", Start: func(ctx context.Context, plane *controlplane.Plane) error {
			if err := plane.Feed().Await(ctx); err != nil {
				return err
			}
			if w.made != nil {
				plane.Feed().OnChange(w.made.changed) // as long as there is the feed
			}
			n.feed.Store(plane.Feed())
			w.feed.Store(plane.Feed())
			return nil
		}})
	}
}

// check refuses values without a meaning.
func (l Limits) check() error {
	var errs []error
	for _, f := range []struct {
		name  string
		value float64
	}{
		{"RequestsPerSecond", l.RequestsPerSecond},
		{"Burst", float64(l.Burst)},
		{"WriteBytesPerSecond", float64(l.WriteBytesPerSecond)},
		{"WriteBurstBytes", float64(l.WriteBurstBytes)},
		{"ObjectBytes", float64(l.ObjectBytes)},
		{"ObjectsPerResource", float64(l.ObjectsPerResource)},
		{"StoredBytesPerNamespace", float64(l.StoredBytesPerNamespace)},
		{"StoredBytesPerUser", float64(l.StoredBytesPerUser)},
		{"WatchesPerUser", float64(l.WatchesPerUser)},
		{"RequestsAtOncePerUser", float64(l.RequestsAtOncePerUser)},
		{"NamespaceFactor", float64(l.NamespaceFactor)},
	} {
		if f.value < 0 || math.IsNaN(f.value) || math.IsInf(f.value, 0) {
			errs = append(errs, fmt.Errorf("field %s is %v: want more than 0, or 0 for no limit", f.name, f.value))
		}
	}
	if l.Burst > 0 && l.RequestsPerSecond == 0 {
		errs = append(errs, fmt.Errorf("field Burst is %d without RequestsPerSecond: set both", l.Burst))
	}
	if l.WriteBurstBytes > 0 && l.WriteBytesPerSecond == 0 {
		errs = append(errs, fmt.Errorf("field WriteBurstBytes is %d without WriteBytesPerSecond: set both", l.WriteBurstBytes))
	}
	switch l.Mode {
	case "", Enforce, Warn, Off:
	default:
		errs = append(errs, fmt.Errorf("field Mode is %q: want %s, %s or %s", l.Mode, Enforce, Warn, Off))
	}
	return errors.Join(errs...)
}

func (l Limits) burst() int {
	if l.Burst > 0 {
		return l.Burst
	}
	return int(min(math.Ceil(l.RequestsPerSecond), math.MaxInt32))
}

func (l Limits) factor() int { return cmp.Or(l.NamespaceFactor, defaultFactor) }
