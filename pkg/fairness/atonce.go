package fairness

import (
	"context"
	"net/http"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
)

// atOnce counts what each user has open. A user with nothing open takes no memory.
type atOnce struct {
	// limit is what a user may have open; 0: anything, which counts all the same.
	limit func(context.Context) int
	// counts tells which requests count.
	counts func(*http.Request) bool
	// refusal is the message, with the limit and the user.
	refusal string
	mu      sync.Mutex
	open    map[string]int
}

// newWatches counts watches.
func newWatches(now current) *atOnce {
	return &atOnce{
		limit: func(ctx context.Context) int { return now(ctx).WatchesPerUser },
		open:  map[string]int{}, refusal: "WatchesPerUser is %d: user %q already has that many watches open",
		counts: func(req *http.Request) bool {
			info, ok := request.RequestInfoFrom(req.Context())
			return ok && info.Verb == "watch"
		},
	}
}

// newRequests counts requests that are not long-running.
func newRequests(now current) *atOnce {
	// As in the server's configuration: requests with a deadline count.
	long := genericfilters.BasicLongRunningRequestCheck(sets.NewString("watch"), sets.NewString())
	return &atOnce{
		limit: func(ctx context.Context) int { return now(ctx).RequestsAtOncePerUser },
		open:  map[string]int{}, refusal: "RequestsAtOncePerUser is %d: user %q already has that many requests running",
		counts: func(req *http.Request) bool {
			info, ok := request.RequestInfoFrom(req.Context())
			u, known := request.UserFrom(req.Context())
			return ok && known && !long(req, info) && !slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup)
		},
	}
}

// wrap is a middleware.
func (x *atOnce) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		name, limited := caller(req)
		if !limited || !x.counts(req) {
			next.ServeHTTP(w, req)
			return
		}
		limit := x.limit(req.Context())
		if !x.begin(name, limit) {
			refuse(w, req, 1, x.refusal, limit, name)
			return
		}
		defer x.end(name)
		next.ServeHTTP(w, req)
	})
}

func (x *atOnce) begin(name string, limit int) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if limit > 0 && x.open[name] >= limit {
		return false
	}
	x.open[name]++
	return true
}

func (x *atOnce) end(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.open[name]--; x.open[name] <= 0 {
		delete(x.open, name)
	}
}
