package aggregator

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sailplane-dev/sailplane/pkg/internal/turns"
)

// TestLargeWritesTakeTurns: what admission reads of a large write waits for its turn, and
// others have theirs while the server behind works.
func TestLargeWritesTakeTurns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		bytes int
		waits bool
	}{
		"large": {turns.Large, true},
		"small": {turns.Large - 100, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				line := turns.New(1)
				handed := false
				s := &server{
					target: &target{place: place{given: &given{Server: Server{Name: "shop/fruit", Admission: true}}}},
					proxy: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
						other := line.Of("other")
						other.Take(t.Context()) // at once: a turn that is kept lasts a second
						other.End()
						handed = true
					}),
				}
				body := `{"data":"` + strings.Repeat("a", c.bytes) + `"}`
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
				turn := line.Of("jane")
				defer turn.End()
				ctx := request.WithRequestInfo(turn.With(r.Context()), &request.RequestInfo{IsResourceRequest: true, Verb: "create"})
				r = r.WithContext(ctx)
				other := line.Of("other")
				other.Take(t.Context())
				var read *write
				go func() {
					var err error
					if read, err = (&router{}).writeOf(r, s); err != nil {
						t.Error(err)
					}
				}()
				synctest.Wait()
				if (read == nil) != c.waits {
					t.Errorf("read while another has the turn: %t", read != nil)
				}
				other.End()
				synctest.Wait()
				if read == nil {
					t.Fatal("it never had its turn")
				}
				began := time.Now()
				read.send(httptest.NewRecorder(), r)
				if !handed || time.Since(began) > 0 {
					t.Errorf("another had no turn while the server behind worked: it waited for %v", time.Since(began))
				}
			})
		})
	}
}
