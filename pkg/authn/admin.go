// Package authn has the parts that find out who calls:
//
//   - [Admin] makes a certificate authority and an administrator
//   - [ClientCA] knows the certificates of other authorities
//   - [Tokens] knows the tokens of a file
//   - [JWT] knows those that OpenID Connect issuers signed
//   - [Webhook] asks another server whose a token is
//   - [Proxy] believes a front proxy
//   - [Anonymous] lets everybody see a few paths
//
// Several may be picked; they are asked in the order of the parts. Credentials
// that are wrong are 401, and never make the caller anonymous.
package authn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/pki"
)

// Admin gives the server a certificate authority of its own, a serving
// certificate signed by it, and one administrator who logs in with a client
// certificate. All keys are ECDSA P-256 and kept in files of mode 0600.
type Admin struct {
	// Dir keeps the keys and certificates. Empty: the folder "pki" beside
	// Kubeconfig, or new ones in memory at each start without a Kubeconfig.
	Dir string
	// Kubeconfig is the file the administrator's kubeconfig is written to when
	// the server is ready, mode 0600. Empty: none is written.
	Kubeconfig string
	// Hosts are further names and addresses the serving certificate is good
	// for. Empty: localhost, 127.0.0.1, ::1 and the address listened at.
	Hosts []string
	// User is the administrator's name. Empty: "sailplane-admin".
	User string
	// Groups are the administrator's groups. Empty: system:masters, which may
	// do everything.
	Groups []string
}

// PartName implements the name errors use.
func (Admin) PartName() string { return "authn.Admin" }

// Install declares the identity, the client certificate authenticator and the kubeconfig.
func (a Admin) Install(p *controlplane.Plan) error {
	var current atomic.Pointer[loaded]
	p.Identify("certificates", func(ctx context.Context, addr net.Addr) (controlplane.Identity, error) {
		l, err := a.load(ctx, addr)
		if err != nil {
			return controlplane.Identity{}, err
		}
		current.Store(l)
		return controlplane.Identity{Serving: l.serving, ClientCA: l.clientCA}, nil
	})
	p.Authenticate("client certificate", authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		l := current.Load()
		if l == nil {
			return nil, false, nil // not listening: nobody comes with a certificate
		}
		return l.certificates.AuthenticateRequest(req)
	}))
	if a.Kubeconfig != "" {
		p.WhenReady("kubeconfig", func(_ context.Context, addr net.Addr) error {
			l := current.Load()
			if l == nil {
				return errors.New("a kubeconfig needs an address: call Listen, or leave Kubeconfig empty")
			}
			endpoint, err := endpointOf(addr)
			if err != nil {
				return err
			}
			return pki.WriteKubeconfig(a.Kubeconfig, l.identity.Kubeconfig(endpoint.URL, ""))
		})
	}
	return nil
}

// loaded is an identity in use.
type loaded struct {
	identity     *pki.Identity
	serving      dynamiccertificates.CertKeyContentProvider
	clientCA     dynamiccertificates.CAContentProvider
	certificates authenticator.Request
}

// endpointOf is how clients reach a bound address. One that is bound to all of
// the machine's, as Go binds 0.0.0.0 and [::] alike, is reached on 127.0.0.1.
func endpointOf(addr net.Addr) (pki.Endpoint, error) {
	if tcp, ok := addr.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		addr = &net.TCPAddr{IP: net.IPv4zero, Port: tcp.Port}
	}
	return pki.EndpointOf(addr)
}

func (a Admin) load(ctx context.Context, addr net.Addr) (*loaded, error) {
	endpoint, err := endpointOf(addr)
	if err != nil {
		return nil, err
	}
	dir := a.Dir
	if dir == "" && a.Kubeconfig != "" {
		dir = filepath.Join(filepath.Dir(a.Kubeconfig), "pki")
	}
	identity, err := pki.Dir(dir).Load(ctx, pki.Request{
		Hosts: append(endpoint.Hosts, a.Hosts...), User: a.User, Groups: a.Groups,
	})
	if err != nil {
		return nil, err
	}
	serving, err := identity.Serving()
	if err != nil {
		return nil, err
	}
	clientCA, err := identity.ClientCA()
	if err != nil {
		return nil, err
	}
	if _, ok := clientCA.VerifyOptions(); !ok {
		return nil, fmt.Errorf("client certificate authority in %s: no usable certificate", dir)
	}
	return &loaded{
		identity: identity, serving: serving, clientCA: clientCA,
		certificates: remember(x509.NewDynamic(clientCA.VerifyOptions, x509.CommonNameUserConversion)),
	}, nil
}
