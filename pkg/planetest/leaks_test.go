package planetest_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/planetest"
)

func leakUntil(end <-chan struct{}) { <-end }

// TestLeak: goroutines that a plane started, by itself or for a request, are
// found when it stops. Those of other planes and of the test are not.
func TestLeak(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it waits until what leaks had the time to end")
	}
	end := make(chan struct{})
	t.Cleanup(func() { close(end) })
	tests := map[string]struct {
		reason string
		part   func(*controlplane.Plan)
		use    func(t planetest.TB, plane *planetest.Plane)
		leaks  bool
	}{
		"work": {
			"what a part starts and does not stop is the plane's",
			func(p *controlplane.Plan) {
				p.Work(controlplane.Work{Name: "leak", Start: func(context.Context, *controlplane.Plane) error { go leakUntil(end); return nil }})
			},
			func(planetest.TB, *planetest.Plane) {}, true,
		},
		"request": {
			"what a request starts is the plane's, whoever asks",
			func(p *controlplane.Plan) {
				p.Wrap(controlplane.Innermost, "leak", func(next http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if r.Header.Get("Leak") != "" {
							go leakUntil(end)
						}
						next.ServeHTTP(w, r)
					})
				})
			},
			func(t planetest.TB, plane *planetest.Plane) {
				request := plane.Client().Discovery().RESTClient().Get().AbsPath("/version").SetHeader("Leak", "1")
				if err := request.Do(context.Background()).Error(); err != nil {
					t.Errorf("%v", err)
				}
			}, true,
		},
		"test": {
			"what the test starts is its own, also while it has a plane",
			func(*controlplane.Plan) {},
			func(planetest.TB, *planetest.Plane) { go leakUntil(end) }, false,
		},
	}
	// All at once, and not as tests in parallel: they would wait in the places of
	// others, which are as many as there are processors.
	var all sync.WaitGroup
	for name, test := range tests {
		all.Go(func() {
			got := failure(t, func(t planetest.TB) {
				part := controlplane.PartFunc(func(p *controlplane.Plan) error { test.part(p); return nil })
				test.use(t, planetest.Options{NoDefaults: true}.Start(t, namespaces(), part))
			})
			switch {
			case !test.leaks && got != "":
				t.Errorf("%s: %s: %s", name, test.reason, got)
			case test.leaks && (!strings.Contains(got, "goroutines of the plane were left") || !strings.Contains(got, "leakUntil")):
				t.Errorf("%s: %s: it failed with %q", name, test.reason, got)
			}
		})
	}
	all.Wait()
}
