package fairness

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// BenchmarkLimits is what all limits add to a request: to a get, to a create with what is
// asked before it is stored, and to one of those who have no limits.
func BenchmarkLimits(b *testing.B) {
	l := Defaults()
	l.RequestsPerSecond, l.Burst, l.WriteBytesPerSecond, l.WriteBurstBytes = 1e12, 1<<30, 1<<50, 1<<30
	l.StoredBytesPerNamespace = 0 // which needs a feed: a look into two maps
	j := newJudge()
	w := &written{now: l.always, judge: j, bytes: newRates()}
	r := &requestRates{now: l.always, judge: j, rates: newRates()}
	put := controlplane.Write{Key: "/registry/configmaps/a/b", Resource: schema.GroupResource{Resource: "configmaps"}, Namespace: "a", Name: "b", Bytes: 1000}
	handler := func(store bool) http.Handler {
		var h http.Handler = http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			if store {
				if _, err := w.guard(req.Context(), put); err != nil {
					b.Error(err)
				}
			}
		})
		h = w.early(r.ofNamespaces(h))
		h = newRequests(l.always, j).wrap(newWatches(l.always, j).wrap(h))
		return identify(r.ofCallers(h))
	}
	bob := &user.DefaultInfo{Name: "system:serviceaccount:a:bob", Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	for name, c := range map[string]struct {
		verb string
		user user.Info
	}{
		"get":    {"get", bob},
		"create": {"create", bob},
		"exempt": {"create", &user.DefaultInfo{Name: "root", Groups: []string{user.SystemPrivilegedGroup}}},
	} {
		b.Run(name, func(b *testing.B) {
			h := handler(c.verb == "create" && c.user == bob)
			ctx := request.WithUser(context.Background(), c.user)
			ctx = request.WithRequestInfo(ctx, &request.RequestInfo{
				IsResourceRequest: true, Verb: c.verb, APIVersion: "v1", Resource: "configmaps", Namespace: "a", Name: "b",
			})
			req := httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/a/configmaps/b", http.NoBody).WithContext(ctx)
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(nil, req)
			}
		})
	}
}
