package envtest

import (
	"bytes"
	"io"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// bodyLimit is the largest request that kube-apiserver takes, in bytes.
const bodyLimit = 3 << 20

// tolerateFinalized serves suites that finalize deleted namespaces themselves, as is
// usual with envtest, which has no namespace controller. Here there is one, and
// it may finish first: a namespace that is gone, or was changed, counts as
// success for the suite.
func tolerateFinalized(p *controlplane.Plan) error {
	p.Wrap(controlplane.Innermost, "finalized namespaces", func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !finalizes(r) {
				next.ServeHTTP(w, r)
				return
			}
			body, err := io.ReadAll(io.LimitReader(r.Body, bodyLimit+1))
			if err != nil || len(body) > bodyLimit {
				r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), r.Body))
				next.ServeHTTP(w, r)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			next.ServeHTTP(&echo{ResponseWriter: w, request: r, body: body}, r)
		})
	})
	return nil
}

// finalizes tells whether a request of a user removes finalizers of a
// namespace.
func finalizes(r *http.Request) bool {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok || info.Verb != "update" || info.APIGroup != "" || info.Resource != "namespaces" || info.Subresource != "finalize" {
		return false
	}
	// Our own controller needs the real answer.
	caller, ok := request.UserFrom(r.Context())
	return ok && caller.GetName() != user.APIServerUser
}

// echo answers with the request's body if the namespace is gone, or was
// changed.
type echo struct {
	http.ResponseWriter
	request *http.Request
	body    []byte // of the request
	isSent  bool
}

// WriteHeader implements http.ResponseWriter.
func (e *echo) WriteHeader(code int) {
	if code != http.StatusNotFound && code != http.StatusConflict {
		e.ResponseWriter.WriteHeader(code)
		return
	}
	e.Header().Set("Content-Type", e.request.Header.Get("Content-Type"))
	_, _ = e.ResponseWriter.Write(e.body)
	e.isSent = true
}

// Write implements http.ResponseWriter.
func (e *echo) Write(b []byte) (int, error) {
	if e.isSent {
		return len(b), nil
	}
	return e.ResponseWriter.Write(b)
}
