package insight

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// quiet is a writer as HTTP/2 has it, which keeps nothing.
type quiet struct{ header http.Header }

func (q *quiet) Header() http.Header         { return q.header }
func (q *quiet) Write(p []byte) (int, error) { return len(p), nil }
func (q *quiet) WriteHeader(int)             {}
func (q *quiet) Flush()                      {}
func (q *quiet) CloseNotify() <-chan bool    { return nil }

// BenchmarkCount is what the middleware adds to a request: of one user, of as many as
// have room, of more, and of all processors at once.
func BenchmarkCount(b *testing.B) {
	for name, users := range map[string]int{"user": 1, "users": mostUsers, "strangers": 100 * mostUsers} {
		h := (&counter{to: newRequests(time.Second)}).wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusOK)
		}))
		asked := make([]*http.Request, users)
		for i := range asked {
			r := httptest.NewRequest(http.MethodGet, "/api/v1/namespaces", http.NoBody)
			ctx := request.WithUser(r.Context(), &user.DefaultInfo{Name: fmt.Sprint("user-", i)})
			ctx = request.WithReceivedTimestamp(ctx, time.Now())
			asked[i] = r.WithContext(request.WithRequestInfo(ctx, &request.RequestInfo{Verb: "list"}))
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			w := &quiet{http.Header{}}
			for i := 0; b.Loop(); i++ {
				h.ServeHTTP(w, asked[i%users])
			}
		})
		b.Run(name+" at once", func(b *testing.B) {
			b.RunParallel(func(p *testing.PB) {
				w := &quiet{http.Header{}}
				for i := 0; p.Next(); i++ {
					h.ServeHTTP(w, asked[i%users])
				}
			})
		})
	}
}
