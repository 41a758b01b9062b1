package fairness

import (
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
	limit int
	// counts tells which requests count.
	counts func(*http.Request) bool
	// refusal is the message, with the limit and the user.
	refusal string
	mu      sync.Mutex
	open    map[string]int
}

// newWatches counts watches.
func newWatches(limit int) *atOnce {
	return &atOnce{
		limit: limit, open: map[string]int{}, refusal: "WatchesPerUser is %d: user %q already has that many watches open",
		counts: func(req *http.Request) bool {
			info, ok := request.RequestInfoFrom(req.Context())
			return ok && info.Verb == "watch"
		},
	}
}

// newRequests counts requests that are not long-running.
func newRequests(limit int) *atOnce {
	// As in the server's configuration: requests with a deadline count.
	long := genericfilters.BasicLongRunningRequestCheck(sets.NewString("watch"), sets.NewString())
	return &atOnce{
		limit: limit, open: map[string]int{}, refusal: "RequestsAtOncePerUser is %d: user %q already has that many requests running",
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
		if !x.begin(name) {
			refuse(w, req, 1, x.refusal, x.limit, name)
			return
		}
		defer x.end(name)
		next.ServeHTTP(w, req)
	})
}

func (x *atOnce) begin(name string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.open[name] >= x.limit {
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
