// Package middleware puts a user's own HTTP handlers into named slots of the
// server's handler chain. No filter of the chain is lost: authentication,
// authorization, deadlines, audit and panic recovery stay where they are.
//
// In a slot, the first of the parts is the outermost.
package middleware

import (
	"errors"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/loopback"
)

// Func wraps a handler. It must call next once or answer itself, and must pass
// on an http.ResponseWriter that unwraps to the one it got (an Unwrap method,
// see http.ResponseController), because watches flush and upgrades hijack.
type Func = func(next http.Handler) http.Handler

// Wrap sees every request first: before panics are recovered and before the
// request is parsed. It is the place for request ids and access logs.
func Wrap(name string, f Func) controlplane.Part { return part{controlplane.Outermost, name, f} }

// BeforeAuthentication knows what is asked (request.RequestInfoFrom) but not by whom.
func BeforeAuthentication(name string, f Func) controlplane.Part {
	return part{controlplane.BeforeAuthentication, name, f}
}

// AfterAuthentication knows the user (request.UserFrom), before impersonation,
// audit, fairness and authorization.
func AfterAuthentication(name string, f Func) controlplane.Part {
	return part{controlplane.AfterAuthentication, name, f}
}

// Innermost runs after authorization, right before the API: requests that reach
// it are allowed.
func Innermost(name string, f Func) controlplane.Part {
	return part{controlplane.Innermost, name, f}
}

// Refuse answers with an error as the API does: a Status object in the encoding
// that the client accepts. An error of k8s.io/apimachinery/pkg/api/errors keeps
// its code and reason; any other is 500.
func Refuse(w http.ResponseWriter, r *http.Request, err error) {
	responsewriters.ErrorNegotiated(err, scheme.Codecs, schema.GroupVersion{Version: "v1"}, w, r)
}

// Internal tells whether a request is the server's own, of its controllers or its
// ClientConfig: these pass through the middleware too, and a server that refuses
// its own requests does not start.
func Internal(r *http.Request) bool { return loopback.From(r.Context()) }

type part struct {
	slot controlplane.Slot
	name string
	wrap Func
}

// PartName implements the name errors use.
func (m part) PartName() string { return fmt.Sprintf("middleware %s", m.name) }

// Install declares the middleware.
func (m part) Install(p *controlplane.Plan) error {
	if m.name == "" {
		return errors.New("the middleware has no name: give it one, such as \"request-id\"")
	}
	if m.wrap == nil {
		return errors.New("the middleware function is nil")
	}
	p.Wrap(m.slot, m.name, m.wrap)
	return nil
}
