package fairness

import (
	"context"
	"net/http"
	"slices"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sailplane-dev/sailplane/pkg/feed"
	"github.com/sailplane-dev/sailplane/pkg/internal/callers"
	"github.com/sailplane-dev/sailplane/pkg/internal/loopback"
)

// caller is who makes a request that has limits.
type caller struct {
	// name is the user who logged in.
	name string
	// namespace is that of the service account, empty for other users.
	namespace string
	// creates is the object that the request creates, after admission (creators).
	creates feed.UID
}

type callerKey struct{}

// callerOf is the caller of a request, by its context; nil for those without limits.
func callerOf(ctx context.Context) *caller {
	c, _ := ctx.Value(callerKey{}).(*caller)
	return c
}

// identify is a middleware that notes the caller before impersonation.
func identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx := req.Context()
		u, ok := request.UserFrom(ctx)
		if ok && !loopback.From(ctx) && !slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
			c := &caller{name: u.GetName(), namespace: callers.Namespace(u.GetName())}
			req = req.WithContext(context.WithValue(ctx, callerKey{}, c))
		}
		next.ServeHTTP(w, req)
	})
}
