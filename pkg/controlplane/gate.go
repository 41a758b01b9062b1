package controlplane

import (
	"net/http"
	"sync/atomic"
)

// gate is the way to a plane's handler from outside. It answers 503 before the plane
// serves, and after it has stopped.
type gate struct{ handler atomic.Pointer[http.Handler] }

func (g *gate) open(h http.Handler) { g.handler.Store(&h) }

func (g *gate) close() { g.handler.Store(nil) }

// ServeHTTP implements http.Handler.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h := g.handler.Load(); h != nil {
		(*h).ServeHTTP(w, r)
		return
	}
	w.Header().Set("Retry-After", "1")
	http.Error(w, "the server is not serving: it has not started or has stopped", http.StatusServiceUnavailable)
}
