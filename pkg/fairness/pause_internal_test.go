package fairness

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sailplane-dev/sailplane/pkg/internal/bodies"
)

// TestPauses: refusals come after a pause, those beyond what is held and of requests that
// end at once, and nothing is left of them.
func TestPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPauses()
		took := func(ctx context.Context, name string) time.Duration {
			begin := time.Now()
			p.hold(ctx, name)
			return time.Since(begin)
		}
		if got := took(t.Context(), "ann"); got != refusalPause {
			t.Errorf("a refusal is held back for %v, want %v", got, refusalPause)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if got := took(ended, "ann"); got != 0 {
			t.Errorf("the refusal of a request that ended is held back for %v, want 0s", got)
		}
		var held sync.WaitGroup
		for range heldRefusals {
			held.Go(func() { p.hold(t.Context(), "ann") })
		}
		synctest.Wait()
		if got := took(t.Context(), "ann"); got != 0 {
			t.Errorf("with %d held for the user, one more is held back for %v, want 0s", heldRefusals, got)
		}
		if got := took(t.Context(), "bob"); got != refusalPause {
			t.Errorf("another user's refusal is held back for %v, want %v", got, refusalPause)
		}
		for i := range allHeldRefusals {
			held.Go(func() { p.hold(t.Context(), fmt.Sprint("user ", i)) })
		}
		synctest.Wait()
		if got := took(t.Context(), "bob"); got != 0 {
			t.Errorf("with %d held, one more is held back for %v, want 0s", allHeldRefusals, got)
		}
		held.Wait()
		if len(p.held) > 0 || p.all > 0 {
			t.Errorf("after the pauses, %d callers and %d refusals are counted, want none", len(p.held), p.all)
		}
	})
}

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
		"refused while it is read": {bob, deep, "application/json", true, refusalPause},
		"refused when it was read": {bob, "a: {b: {c: {d: {}}}}", "application/yaml", true, refusalPause},
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
