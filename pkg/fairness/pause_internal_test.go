package fairness

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sailplane-dev/sailplane/pkg/internal/bodies"
	"github.com/sailplane-dev/sailplane/pkg/internal/pauses"
)

// TestRefusedBodies: the refusal of a body comes after a pause, when the handlers inside are
// done with the request, and what is not refused, or has no limits, comes at once.
func TestRefusedBodies(t *testing.T) {
	t.Parallel()
	checker := &bodies.Checker{Limits: bodies.Limits{Depth: 3, Values: 9, Members: 9}}
	bob := &user.DefaultInfo{Name: "bob", Groups: []string{user.AllAuthenticated}}
	root := &user.DefaultInfo{Name: "root", Groups: []string{user.SystemPrivilegedGroup}}
	const deep = `{"a":{"b":{"c":{"d":{}}}}}`
	for name, tc := range map[string]struct {
		user        user.Info
		body        string
		contentType string
		refused     bool
		want        time.Duration
	}{
		"refused while it is read": {bob, deep, "application/json", true, pauses.Length},
		"refused when it was read": {bob, "a: {b: {c: {d: {}}}}", "application/yaml", true, pauses.Length},
		"without limits":           {root, deep, "application/json", true, 0},
		"good":                     {bob, `{"a":{}}`, "application/json", false, 0},
		"none":                     {bob, "", "application/json", false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				rates := &requestRates{now: Defaults().always, judge: newJudge(), rates: newRates()}
				h := identify(rates.ofCallers(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					checker.Guard(r, nil)
					_, err := io.ReadAll(r.Body)
					if refused := err != nil; refused != tc.refused {
						t.Errorf("the body fails with %v, want that it is refused: %t", err, tc.refused)
					}
					if took := time.Since(begin); took > 0 {
						t.Errorf("inside, the request took %v", took)
					}
				})))
				r := httptest.NewRequest(http.MethodPost, "/api/v1/namespaces", strings.NewReader(tc.body))
				r.Header.Set("Content-Type", tc.contentType)
				h.ServeHTTP(httptest.NewRecorder(), r.WithContext(request.WithUser(t.Context(), tc.user)))
				if took := time.Since(begin); took != tc.want {
					t.Errorf("the answer comes after %v, want %v", took, tc.want)
				}
			})
		})
	}
}
