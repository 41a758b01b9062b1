package aggregator

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/internal/vouched"
)

// TestHandedOn: a handler in the process leaves out what this server has done for a request,
// but for those without a deadline here: any request is one if its client asks for an upgrade.
func TestHandedOn(t *testing.T) {
	t.Parallel()
	for name, lasts := range map[string]bool{"with a deadline": false, "that lasts": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			called := false
			s := &server{target: &target{place: place{given: &given{Server: Server{
				Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					called = true
					if got := vouched.IsHandedOn(r.Context()); got == lasts {
						t.Errorf("nothing is done again: %t", got)
					}
					who, ok, err := vouched.Authenticator().AuthenticateRequest(r)
					if err != nil || !ok || who.User.GetName() != self().GetName() {
						t.Errorf("it is asked by %v, %t, %v", who, ok, err)
					}
				}),
			}}}}}
			h := &hop{to: &url.URL{Scheme: "https", Host: "fruit.shop.svc", Path: "/"}, as: self(), lasts: lasts}
			r := httptest.NewRequestWithContext(context.WithValue(t.Context(), hopKey{}, h), http.MethodGet, "/", http.NoBody)
			s.call(httptest.NewRecorder(), r)
			if !called {
				t.Error("the handler was not called")
			}
		})
	}
}
