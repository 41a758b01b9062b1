package controlplane

import (
	"net/http"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
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

// unknownYet answers 503 to those who fail to authenticate while a plane starts: whom they
// come from may not be known yet, and to clients 401 is the end.
func unknownYet(failed http.Handler, ready <-chan struct{}, codecs runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if signal.Closed(ready) {
			failed.ServeHTTP(w, r)
			return
		}
		err := apierrors.NewServiceUnavailable("the server starts, and may not know yet who you are")
		err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
		responsewriters.ErrorNegotiated(err, codecs, schema.GroupVersion{Version: "v1"}, w, r)
	})
}
