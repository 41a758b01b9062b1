package fairness

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/lru"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/loopback"
)

// Limits are fixed limits, the same for every user: the one who logged in, not
// the one that is impersonated. An empty field limits nothing. [FollowLimits] has
// them change while a plane runs.
//
// A refusal names the limit and its value: with 413 when an object is too large,
// with 429 and Retry-After otherwise. Clients built on client-go obey Retry-After
// up to ten times. The server itself and its ClientConfig have no limits. Refused
// requests are audited; requests of unknown callers are refused before.
type Limits struct {
	// RequestsPerSecond is how many requests a user may make on average. A watch
	// is one request.
	RequestsPerSecond float64
	// Burst is how many of them may come at once. Empty: as many as in a second,
	// and at least one.
	Burst int
	// ObjectBytes is the largest object that is stored, as JSON with everything
	// the server adds to it. An object that was larger before may still shrink.
	ObjectBytes int
	// ObjectsPerResource is how many objects of a resource there may be in each
	// namespace; for a cluster-scoped one, in all. Objects that are created at
	// the same time may together pass the limit.
	ObjectsPerResource int
	// WatchesPerUser is how many watches a user may have open.
	WatchesPerUser int
	// RequestsAtOncePerUser is how many requests of a user may run at the same
	// time; watches, which run long, do not count. A request runs from its header
	// to its answer: one whose body comes slowly counts until all of it has
	// arrived. Group system:masters is exempt, as it is from priority and
	// fairness, so that an administrator always gets in.
	RequestsAtOncePerUser int
}

// users is how many users' rates are kept. The user who was away longest is
// forgotten, so that users cannot fill the memory.
const users = 10_000

// PartName implements the name errors use.
func (Limits) PartName() string { return "fairness.Limits" }

// Install declares the middleware and the admission of the limits.
func (l Limits) Install(p *controlplane.Plan) error {
	if err := l.check(); err != nil {
		return err
	}
	l.enforce(p, l.always)
	return nil
}

// always are the limits of a plane that does not change them.
func (l Limits) always(context.Context) Limits { return l }

// current returns the limits that a request has, by its context. They are valid.
type current func(context.Context) Limits

// enforce declares what enforces the limits that are set here, with the values that
// they currently have.
func (l Limits) enforce(p *controlplane.Plan, now current) {
	if l.RequestsPerSecond > 0 {
		p.Wrap(controlplane.AfterAudit, "requests per second", newRates(now).wrap)
	}
	if l.WatchesPerUser > 0 {
		p.Wrap(controlplane.AfterAudit, "watches per user", newWatches(now).wrap)
	}
	if l.RequestsAtOncePerUser > 0 {
		p.Wrap(controlplane.AfterAudit, "requests at once per user", newRequests(now).wrap)
	}
	if l.ObjectBytes > 0 {
		p.Admit("object bytes", &size{now})
	}
	if l.ObjectsPerResource > 0 {
		n := &number{now: now}
		p.Feed()
		p.Work(controlplane.Work{Name: "objects per resource", Start: func(ctx context.Context, plane *controlplane.Plane) error {
			if err := plane.Feed().Await(ctx); err != nil {
				return err
			}
			n.feed.Store(plane.Feed())
			return nil
		}})
		p.Admit("objects per resource", n)
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
		{"ObjectBytes", float64(l.ObjectBytes)},
		{"ObjectsPerResource", float64(l.ObjectsPerResource)},
		{"WatchesPerUser", float64(l.WatchesPerUser)},
		{"RequestsAtOncePerUser", float64(l.RequestsAtOncePerUser)},
	} {
		if f.value < 0 || math.IsNaN(f.value) || math.IsInf(f.value, 0) {
			errs = append(errs, fmt.Errorf("field %s is %v: want more than 0, or 0 for no limit", f.name, f.value))
		}
	}
	if l.Burst > 0 && l.RequestsPerSecond == 0 {
		errs = append(errs, fmt.Errorf("field Burst is %d without RequestsPerSecond: set both", l.Burst))
	}
	return errors.Join(errs...)
}

func (l Limits) burst() int {
	if l.Burst > 0 {
		return l.Burst
	}
	return int(min(math.Ceil(l.RequestsPerSecond), math.MaxInt32))
}

// rates are the users' token buckets.
type rates struct {
	now     current
	mu      sync.Mutex
	buckets *lru.Cache
}

// bucket is that of one user, with the limits it was last used with.
type bucket struct {
	*rate.Limiter
	perSecond float64
	burst     int
}

func newRates(now current) *rates { return &rates{now: now, buckets: lru.New(users)} }

// of is the bucket of a user. One from before a change of the limits goes on with
// what is left in it.
func (r *rates) of(name string, perSecond float64, burst int) *rate.Limiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	found, _ := r.buckets.Get(name)
	b, ok := found.(*bucket)
	if !ok {
		b = &bucket{rate.NewLimiter(rate.Limit(perSecond), burst), perSecond, burst}
		r.buckets.Add(name, b)
	}
	if b.perSecond != perSecond || b.burst != burst {
		b.SetLimit(rate.Limit(perSecond))
		b.SetBurst(burst)
		b.perSecond, b.burst = perSecond, burst
	}
	return b.Limiter
}

// wrap is a middleware.
func (r *rates) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		name, limited := caller(req)
		l := r.now(req.Context())
		if limited && l.RequestsPerSecond > 0 && !r.of(name, l.RequestsPerSecond, l.burst()).Allow() {
			refuse(w, req, math.Ceil(1/l.RequestsPerSecond),
				"RequestsPerSecond is %v with Burst %d: user %q sends more requests", l.RequestsPerSecond, l.burst(), name)
			return
		}
		next.ServeHTTP(w, req)
	})
}

// caller is the user of a request, and whether limits apply.
func caller(req *http.Request) (name string, limited bool) {
	u, ok := request.UserFrom(req.Context())
	if !ok || loopback.From(req.Context()) {
		return "", false
	}
	return u.GetName(), true
}

// refuse answers 429 as the API does.
func refuse(w http.ResponseWriter, req *http.Request, seconds float64, message string, args ...any) {
	err := tooMany(seconds, message, args...)
	responsewriters.ErrorNegotiated(err, scheme.Codecs, schema.GroupVersion{Version: "v1"}, w, req)
}

// tooMany is a 429 that says when to come back, within an hour.
func tooMany(seconds float64, message string, args ...any) error {
	return apierrors.NewTooManyRequests(fmt.Sprintf("limit "+message, args...), int(min(max(seconds, 1), time.Hour.Seconds())))
}
