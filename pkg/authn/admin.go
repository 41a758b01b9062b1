// Package authn has the parts that find out who calls:
//
//   - [Admin] makes a certificate authority and an administrator
//   - [ServingCertificate] lets the server prove itself with a certificate of yours
//   - [ClientCA] knows the certificates of other authorities
//   - [Tokens] knows the tokens of a file
//   - [JWT] knows the tokens that OpenID Connect issuers signed
//   - [Webhook] asks another server whose token it is
//   - [Proxy] believes a front proxy
//   - [Anonymous] lets everybody see a few paths
//
// Build reads the files that the others have, and says which are missing or wrong.
// Several parts may be picked; they are asked in the order of the parts. Wrong
// credentials are 401, and never make the caller anonymous.
package authn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/follow"
	"github.com/sailplane-dev/sailplane/pkg/internal/pki"
)

// Admin gives the server a certificate authority of its own, a serving
// certificate signed by it, and one administrator who logs in with a client
// certificate. All keys are ECDSA P-256 and kept in files of mode 0600.
// While the server runs, it renews the serving certificate 30 days before it expires, and
// the administrator's when a third of its lifetime is left; the kubeconfig has it at once.
//
// A certificate that the authority signed is refused within seconds after Revoke or
// "sailplane pki revoke", also on open connections. The file revoked.crl in Dir has the list.
//
// To change the authority, append the new one to ca.crt and give that to all
// clients (the kubeconfig has it at once); then put it first, with its key in
// ca.key; then, when nobody has certificates of the old one, remove that. Each
// step takes effect within seconds, and connections stay open.
type Admin struct {
	// Dir keeps the keys and certificates. Empty: the folder "pki" beside
	// Kubeconfig, or without a Kubeconfig new ones in memory at each start.
	Dir string
	// Kubeconfig is the file the administrator's kubeconfig is written to when
	// the server is ready, mode 0600. Empty: none is written.
	Kubeconfig string
	// Hosts are further names and addresses the serving certificate is valid for.
	// Empty: localhost, 127.0.0.1, ::1 and the listening address.
	Hosts []string
	// Address is how clients reach the server, for the kubeconfig: HOST, with the port
	// that the server listens at, or HOST:PORT. Empty: the listening address.
	Address string
	// User is the administrator's name. Empty: "sailplane-admin".
	User string
	// Groups are the administrator's groups. Empty: system:masters, which may
	// do everything.
	Groups []string
	// Lifetime is how long the administrator's certificate is valid, an hour or more. A copy
	// of the kubeconfig ends with it. Empty: 30 days.
	Lifetime time.Duration
}

// PartName implements the name errors use.
func (Admin) PartName() string { return "authn.Admin" }

// Install implements controlplane.Part.
func (Admin) Install(*controlplane.Plan) error { return controlplane.ErrServerOnly }

// InstallServer declares the identity, the client certificate authenticator and the kubeconfig.
func (a Admin) InstallServer(p *controlplane.ServerPlan) error {
	if a.Address != "" {
		if _, err := pki.URLOf(a.Address, &net.TCPAddr{}); err != nil {
			return fmt.Errorf("field Address: %w", err)
		}
	}
	if a.Lifetime != 0 && a.Lifetime < time.Hour {
		return fmt.Errorf("field Lifetime: %v: want an hour or more", a.Lifetime)
	}
	a.Dir = a.dir()
	i := &identity{
		Admin:    a,
		serving:  &certificate{name: "serving certificate"},
		clientCA: &authority{what: "client certificate authority in", file: a.Dir},
	}
	p.Identify("certificates", func(ctx context.Context, addr net.Addr) (controlplane.Identity, error) {
		i.addr = addr
		if err := i.load(ctx); err != nil {
			return controlplane.Identity{}, err
		}
		return controlplane.Identity{Serving: i.serving, ClientCA: i.clientCA, ServingCA: i.clientCA}, nil
	})
	// Without a listener there are no authorities, and nobody is known.
	known := i.clientCA.clients(nil, nil)
	p.EachPlane(func(p *controlplane.Plan) {
		p.Authenticate("client certificate", known)
	})
	p.Work(controlplane.Work{Name: "certificates", Start: i.start, Run: i.follow})
	return nil
}

// identity is the part in one server. A server without a listener has none.
type identity struct {
	Admin
	addr     net.Addr
	serving  *certificate
	clientCA *authority
	now      atomic.Pointer[pki.Identity]
}

// load puts the files of the folder into effect, and makes those it lacks.
func (i *identity) load(ctx context.Context) error {
	endpoint, err := endpointOf(i.addr)
	if err != nil {
		return err
	}
	next, err := pki.Dir(i.Dir).Load(ctx, pki.Request{
		Hosts: append(endpoint.Hosts, i.Hosts...), User: i.User, Groups: i.Groups, Lifetime: i.Lifetime,
	})
	if err != nil {
		return err
	}
	ca, err := i.clientCA.parse(next.CA)
	if err != nil {
		return err
	}
	serving, err := newCertAndKey(next.ServerCert, next.ServerKey)
	if err != nil {
		return fmt.Errorf("%s: %w", i.serving.name, err)
	}
	revoked, err := pki.ParseLists(next.Revoked)
	if err != nil {
		return err
	}
	if err := errors.Join(i.clientCA.use(ctx, ca), i.clientCA.revoke(ctx, revoked), i.serving.use(ctx, serving)); err != nil {
		return err
	}
	i.now.Store(next)
	return nil
}

// start writes the kubeconfig once the server is ready.
func (i *identity) start(context.Context, *controlplane.Plane) error {
	if i.Kubeconfig == "" {
		return nil
	}
	return i.writeKubeconfig()
}

func (i *identity) writeKubeconfig() error {
	l := i.now.Load()
	if l == nil {
		return errors.New("a kubeconfig needs an address: call Listen, or leave Kubeconfig empty")
	}
	endpoint, err := endpointOf(i.addr)
	if err != nil {
		return err
	}
	url := endpoint.URL
	if i.Address != "" {
		if url, err = pki.URLOf(i.Address, i.addr); err != nil {
			return fmt.Errorf("field Address: %w", err)
		}
	}
	return pki.WriteKubeconfig(i.Kubeconfig, l.Kubeconfig(url, ""))
}

// follow reloads the folder when its certificates change or are due for renewal,
// until the context ends.
func (i *identity) follow(ctx context.Context, _ *controlplane.Plane) error {
	if i.Dir == "" || i.now.Load() == nil {
		return nil
	}
	again := func(ctx context.Context, _ []byte) error {
		if err := i.load(ctx); err != nil || i.Kubeconfig == "" {
			return err
		}
		return i.writeKubeconfig()
	}
	f := &follow.File{Source: follow.Source{What: "certificates", File: i.Dir, Read: i.state, Use: again}}
	// If it cannot be read, Run reports that.
	if state, err := i.state(i.Dir); err == nil {
		f.Begun(state)
	}
	return f.Run(ctx)
}

// state changes when the folder must be reloaded.
func (i *identity) state(dir string) ([]byte, error) {
	state, err := pki.Dir(dir).State()
	if time.Now().After(i.now.Load().Renew) {
		state = append(state, "due"...)
	}
	return state, err
}

// endpointOf is how clients reach a bound address. An unspecified one, as Go
// binds 0.0.0.0 and [::] alike, is reached on 127.0.0.1.
func endpointOf(addr net.Addr) (pki.Endpoint, error) {
	if tcp, ok := addr.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		addr = &net.TCPAddr{IP: net.IPv4zero, Port: tcp.Port}
	}
	return pki.EndpointOf(addr)
}
