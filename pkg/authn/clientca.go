package authn

import (
	"errors"
	"net/http"
	"sync/atomic"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/x509"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// ClientCA recognises callers by client certificates that authorities in a file
// signed: the common name is the user, the organizations are the groups. That
// includes system:masters: an authority can give every permission. The part that
// brings the server's identity, such as [Admin], makes the listener ask for
// certificates; a listener of your own must ask for them and pass on the
// connection's.
type ClientCA struct {
	// File has the certificates of the authorities, PEM encoded. Changes take
	// effect within seconds, also for open connections; a file that cannot be
	// used changes nothing and is logged. Required.
	File string
}

// PartName implements the name errors use.
func (ClientCA) PartName() string { return "authn.ClientCA" }

// Install implements controlplane.Part.
func (ClientCA) Install(*controlplane.Plan) error { return controlplane.ErrServerOnly }

// InstallServer declares the authenticator and the work that follows the file.
func (c ClientCA) InstallServer(p *controlplane.ServerPlan) error {
	if c.File == "" {
		return errors.New("field File: is empty: name a PEM file with the authorities' certificates")
	}
	a := &authority{what: "client certificate authorities", file: c.File}
	var known atomic.Pointer[authenticator.Request]
	// Remembered answers end with the authorities they are based on.
	forget := func() {
		next := remember(x509.NewDynamic(a.VerifyOptions, x509.CommonNameUserConversion))
		known.Store(&next)
	}
	forget()
	a.AddListener(listener(forget))
	a.install(p, "field File")
	p.EachPlane(func(p *controlplane.Plan) {
		p.Authenticate(a.Name(), authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
			return (*known.Load()).AuthenticateRequest(req)
		}))
	})
	return nil
}
