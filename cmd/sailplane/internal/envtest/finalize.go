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

// finalized lets suites go on that finalize deleted namespaces themselves, as
// is usual with envtest, where nobody else does. Here somebody does, and may be
// done first: that the namespace is gone, or was changed, is what they wanted.
func finalized(p *controlplane.Plan) error {
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
			answer := &answer{header: http.Header{}}
			next.ServeHTTP(answer, r)
			if answer.code == http.StatusNotFound || answer.code == http.StatusConflict {
				w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
				_, _ = w.Write(body)
				return
			}
			answer.send(w)
		})
	})
	return nil
}

// finalizes tells whether a request of a user takes finalizers off a namespace.
func finalizes(r *http.Request) bool {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok || info.Verb != "update" || info.APIGroup != "" || info.Resource != "namespaces" || info.Subresource != "finalize" {
		return false
	}
	// Our own controller wants to know.
	caller, ok := request.UserFrom(r.Context())
	return ok && caller.GetName() != user.APIServerUser
}

// answer keeps what a handler answers.
type answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(code int) {
	if a.code == 0 {
		a.code = code
	}
}

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}

func (a *answer) send(w http.ResponseWriter) {
	for name, values := range a.header {
		w.Header()[name] = values
	}
	if a.code != 0 {
		w.WriteHeader(a.code)
	}
	_, _ = w.Write(a.body.Bytes())
}
