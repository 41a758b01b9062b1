package fairness

import (
	"context"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
)

// atOnce counts what each user has open. A user with nothing open takes no memory.
type atOnce struct {
	now   current
	judge *judge
	// name is that of the limit.
	name string
	// limit is what a user may have open; 0: anything, which counts all the same.
	limit func(Limits) int
	// counts tells which requests count.
	counts func(*http.Request) bool
	// refusal is the end of the message: "has that many watches open".
	refusal string

	mu sync.Mutex
	// open is by user, and together by the namespace of service accounts.
	open, together map[string]int
}

// newWatches counts watches.
func newWatches(now current, j *judge) *atOnce {
	return &atOnce{
		now: now, judge: j, name: "WatchesPerUser", limit: func(l Limits) int { return l.WatchesPerUser },
		open: map[string]int{}, together: map[string]int{}, refusal: "watches open",
		counts: func(req *http.Request) bool {
			info, ok := request.RequestInfoFrom(req.Context())
			return ok && info.Verb == "watch"
		},
	}
}

// newRequests counts requests that are not long-running.
func newRequests(now current, j *judge) *atOnce {
	// As in the server's configuration: requests with a deadline count.
	long := genericfilters.BasicLongRunningRequestCheck(sets.NewString("watch"), sets.NewString())
	return &atOnce{
		now: now, judge: j, name: "RequestsAtOncePerUser", limit: func(l Limits) int { return l.RequestsAtOncePerUser },
		open: map[string]int{}, together: map[string]int{}, refusal: "requests running",
		counts: func(req *http.Request) bool {
			info, ok := request.RequestInfoFrom(req.Context())
			return ok && !long(req, info)
		},
	}
}

// wrap is a middleware.
func (x *atOnce) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		c := callerOf(req.Context())
		if c == nil || !x.counts(req) {
			next.ServeHTTP(w, req)
			return
		}
		if e := x.begin(req.Context(), c); e != nil {
			x.judge.answer(w, req, e)
			return
		}
		defer x.end(c)
		next.ServeHTTP(w, req)
	})
}

// begin counts a request, or returns why it is refused.
func (x *atOnce) begin(ctx context.Context, c *caller) *exceeded {
	l := x.now(ctx)
	limit := x.limit(l)
	x.mu.Lock()
	var e *exceeded
	switch {
	case limit > 0 && x.open[c.name] >= limit:
		e = tooMany(x.name, c.name, 1, "%d: user %q already has that many %s", limit, c.name, x.refusal)
	case limit > 0 && c.namespace != "" && x.together[c.namespace] >= limit*l.factor():
		e = tooMany(x.name, c.name, 1,
			"%d%s: the service accounts of namespace %q together already have that many %s",
			limit, multiple(l.factor()), c.namespace, x.refusal)
	}
	if e == nil || l.Mode == Warn {
		x.open[c.name]++
		if c.namespace != "" {
			x.together[c.namespace]++
		}
	}
	x.mu.Unlock()
	if e != nil && x.judge.refuses(ctx, l, e) {
		return e
	}
	return nil
}

func (x *atOnce) end(c *caller) {
	x.mu.Lock()
	defer x.mu.Unlock()
	less(x.open, c.name)
	if c.namespace != "" {
		less(x.together, c.namespace)
	}
}

func less(counts map[string]int, name string) {
	if counts[name]--; counts[name] <= 0 {
		delete(counts, name)
	}
}
