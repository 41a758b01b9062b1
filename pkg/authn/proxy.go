package authn

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/request/x509"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/pki"
)

// Proxy recognises callers by headers of a proxy that authenticated them and
// proves itself with a client certificate. Without that certificate the headers
// mean nothing. They are dropped from every request: middleware of later parts
// and the API never see them.
//
// When another part accepts the certificate too, the first part wins: put Proxy
// before Admin and ClientCA, or better, give proxies an authority of their own.
type Proxy struct {
	// ClientCAFile has the certificates of the authorities that sign those of
	// proxies, PEM encoded. Changes take effect within seconds; a file that
	// cannot be used changes nothing and is logged. Required.
	ClientCAFile string
	// AllowedNames are the common names of proxies. Empty: every certificate of
	// the authorities is a proxy's.
	AllowedNames []string
	// UsernameHeaders have the user's name; the first that has a value counts.
	// Empty: X-Remote-User.
	UsernameHeaders []string
	// GroupHeaders have the groups, one in each value. Empty: X-Remote-Group.
	GroupHeaders []string
	// UIDHeaders have the user's UID; the first that has a value counts. Empty:
	// X-Remote-Uid.
	UIDHeaders []string
	// ExtraHeaderPrefixes begin the headers with extra fields of the user; the
	// rest of the header names the field. Empty: X-Remote-Extra-.
	ExtraHeaderPrefixes []string
}

// PartName implements the name errors use.
func (Proxy) PartName() string { return "authn.Proxy" }

// Install implements controlplane.Part.
func (Proxy) Install(*controlplane.Plan) error { return controlplane.ErrServerOnly }

// InstallServer declares the authenticator, the work that follows the file, and the
// middleware that drops the headers.
func (x Proxy) InstallServer(p *controlplane.ServerPlan) error {
	if x.ClientCAFile == "" {
		return errors.New("field ClientCAFile: is empty: name a PEM file with the certificates of the proxies' authorities")
	}
	if slices.Contains(x.AllowedNames, "") {
		return errors.New("field AllowedNames: a name is empty: a proxy's certificate needs a common name")
	}
	names, err1 := headers("UsernameHeaders", x.UsernameHeaders, "X-Remote-User")
	groups, err2 := headers("GroupHeaders", x.GroupHeaders, "X-Remote-Group")
	uids, err3 := headers("UIDHeaders", x.UIDHeaders, "X-Remote-Uid")
	extra, err4 := headers("ExtraHeaderPrefixes", x.ExtraHeaderPrefixes, "X-Remote-Extra-")
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	a := &authority{what: "proxy certificate authorities", file: x.ClientCAFile}
	a.install(p, "field ClientCAFile")
	verify := x509.NewDynamicCAVerifier(a.VerifyOptions, authenticator.RequestFunc(accept),
		x509.StaticStringSlice(slices.Clone(x.AllowedNames)))
	proxies := a.remembered(func(pki.Revocations) authenticator.Request { return verify })
	told := headerrequest.NewDynamic(names, uids, groups, extra)
	believe := authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		if _, ok, err := proxies.AuthenticateRequest(req); !ok || err != nil {
			return nil, false, err
		}
		return told.AuthenticateRequest(req)
	})
	// Upstream drops the headers with the usual names only.
	drop := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			headerrequest.ClearAuthenticationHeaders(req.Header, names, uids, groups, extra)
			next.ServeHTTP(w, req)
		})
	}
	p.EachPlane(func(p *controlplane.Plan) {
		p.Authenticate(a.Name(), believe)
		p.Wrap(controlplane.AfterAuthentication, "drop headers of "+a.Name(), drop)
	})
	return nil
}

// accept is asked about proxies whose certificate was verified. Whom they name is
// another in each request.
func accept(*http.Request) (*authenticator.Response, bool, error) {
	return &authenticator.Response{}, true, nil
}

// headers are the values of a field, or its default when it is empty.
func headers(field string, values []string, empty string) (headerrequest.StaticStringSlice, error) {
	if len(values) == 0 {
		return headerrequest.StaticStringSlice{empty}, nil
	}
	for i, v := range values {
		if v == "" || strings.Trim(strings.ToLower(v), "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return nil, fmt.Errorf("field %s[%d]: %q: want a header name, such as %s", field, i, v, empty)
		}
	}
	return slices.Clone(values), nil
}
