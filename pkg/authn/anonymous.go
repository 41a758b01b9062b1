package authn

import (
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// Anonymous lets callers without credentials ask for some paths, as user
// system:anonymous of group system:unauthenticated. What they may do there is
// up to the authorizers. A request with credentials that no part recognises, a
// token or a client certificate, is 401 on every path.
type Anonymous struct {
	// Paths are exact paths: "/healthz", "/livez", "/readyz", "/version". Empty:
	// these four, which tell whether the server works and what it is.
	Paths []string
}

// PartName implements the name errors use.
func (Anonymous) PartName() string { return "authn.Anonymous" }

// Install declares the authenticator.
func (a Anonymous) Install(p *controlplane.Plan) error {
	var errs []error
	var conditions []apiserver.AnonymousAuthCondition
	if len(a.Paths) == 0 {
		a.Paths = []string{"/healthz", "/livez", "/readyz", "/version"}
	}
	for i, name := range a.Paths {
		if !strings.HasPrefix(name, "/") || path.Clean(name) != name || strings.ContainsAny(name, "*?#%") {
			errs = append(errs, fmt.Errorf(`field Paths[%d]: %q: want one path such as "/livez", without patterns`, i, name))
		}
		conditions = append(conditions, apiserver.AnonymousAuthCondition{Path: name})
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	allowed := anonymous.NewAuthenticator(conditions)
	p.Authenticate("anonymous", authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		// The plane asks this authenticator even after another refused a
		// credential, which must not make the caller anonymous.
		if hasCredentials(req) {
			return nil, false, nil
		}
		return allowed.AuthenticateRequest(req)
	}))
	return nil
}
