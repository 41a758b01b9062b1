package controlplane

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sailplane-dev/sailplane/pkg/internal/bodies"
	"github.com/sailplane-dev/sailplane/pkg/internal/turns"
)

// TestLargeRequestsTakeTurns: a large body waits for its turn, a small one does not, and
// nor do those of other servers' resources.
func TestLargeRequestsTakeTurns(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		resource string
		bytes    int
		waits    bool
	}{
		"large":             {resource: "configmaps", bytes: turns.Large, waits: true},
		"small":             {resource: "configmaps", bytes: turns.Large - 100},
		"of another server": {resource: "metrics", bytes: turns.Large},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := &chain{
					turns: turns.New(1), bodies: &bodies.Checker{Limits: bodies.Limits(BodyLimits{}.withDefaults())},
					stored:  func(r schema.GroupResource) bool { return r.Resource == "configmaps" },
					streams: func(_ *http.Request, info *request.RequestInfo) bool { return info.Subresource == "log" },
				}
				read := false
				h := c.withBodyLimits(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					if _, err := io.ReadAll(r.Body); err != nil {
						t.Error(err)
					}
					read = true
				}))
				other := c.turns.Of("other")
				other.Take(t.Context())
				body := `{"data":"` + strings.Repeat("a", tc.bytes) + `"}`
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
				ctx := request.WithUser(r.Context(), &user.DefaultInfo{Name: "jane"})
				ctx = request.WithRequestInfo(ctx, &request.RequestInfo{IsResourceRequest: true, Verb: "create", Resource: tc.resource})
				go h.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
				synctest.Wait()
				if read == tc.waits {
					t.Errorf("read while another has the turn: %t", read)
				}
				other.End()
				synctest.Wait()
				if !read {
					t.Error("it never had its turn")
				}
				again := c.turns.Of("other") // the turn of the request ended with it
				again.Take(t.Context())
				again.End()
			})
		})
	}
}
