package aggregator

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/sailplane-dev/sailplane/pkg/internal/loopback"
	"github.com/sailplane-dev/sailplane/pkg/internal/vouched"
)

// target is a way to a server: over TLS, or by a call.
type target struct {
	place
	connections *connections
	base        *url.URL // nil: the Service is resolved for each request

	tls    *tls.Config
	ways   atomic.Pointer[ways]
	direct *loopback.Transport
	wrong  error // why there is no way, as long as the place is what it is
}

// ways are the connections to a server. There are new ones when the certificate changes that
// they present: a connection is known by that of its beginning, however long it lasts.
type ways struct {
	plain   http.RoundTripper // HTTP/2 where the server has it
	upgrade *http.Transport   // HTTP/1.1, which can be upgraded; nil for a handler
}

func newTarget(at place, c *connections) *target {
	t := &target{place: at, connections: c}
	switch {
	case at.given != nil && at.given.Handler != nil:
		t.base = &url.URL{Scheme: "https", Host: at.name + "." + at.namespace + ".svc"}
		t.direct = &loopback.Transport{}
		t.direct.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // of this server's own requests
			at.given.Handler.ServeHTTP(w, r.WithContext(vouched.With(r.Context(), self())))
		}))
		t.ways.Store(&ways{plain: t.direct})
		return t
	case at.given != nil:
		t.base = at.given.base
	case at.url != "":
		if t.base, t.wrong = parseURL(at.url); t.wrong != nil {
			t.wrong = fmt.Errorf("annotation %s: %w", URLAnnotation, t.wrong)
			return t
		}
	}
	t.tls = &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: at.name + "." + at.namespace + ".svc", GetClientCertificate: c.identity.present,
	}
	if t.base != nil {
		t.tls.ServerName = t.base.Hostname()
	}
	if at.insecure {
		t.tls.InsecureSkipVerify = true //nolint:gosec // the APIService asks for it
	} else if at.ca != "" {
		t.tls.RootCAs = x509.NewCertPool()
		if !t.tls.RootCAs.AppendCertsFromPEM([]byte(at.ca)) {
			t.wrong = errors.New("caBundle: has no certificate, PEM encoded")
			return t
		}
	}
	t.renew()
	return t
}

// renew has requests take new connections. Those that run stay where they are.
func (t *target) renew() {
	if t.direct != nil || t.wrong != nil {
		return
	}
	plain, upgrade := t.transport(), t.transport()
	plain.ForceAttemptHTTP2 = true
	upgrade.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	if before := t.ways.Swap(&ways{plain, upgrade}); before != nil {
		before.close()
	}
}

// RoundTrip implements http.RoundTripper.
func (t *target) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.ways.Load().plain.RoundTrip(r)
}

// close ends the connections that are not in use.
func (w *ways) close() {
	if plain, ok := w.plain.(*http.Transport); ok {
		plain.CloseIdleConnections()
		w.upgrade.CloseIdleConnections()
	}
}

// self is who this server is to those behind it, as in kube-aggregator.
func self() user.Info {
	return &user.DefaultInfo{Name: "system:kube-aggregator", Groups: []string{user.SystemPrivilegedGroup}}
}

func (t *target) transport() *http.Transport {
	return &http.Transport{
		DialContext: t.dial, TLSClientConfig: t.tls.Clone(), TLSHandshakeTimeout: 10 * time.Second,
		Proxy: t.proxy, DisableCompression: true, // what the client accepts is handed on
		MaxIdleConnsPerHost: 64, IdleConnTimeout: 90 * time.Second, ExpectContinueTimeout: time.Second,
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
}

// close ends what the target keeps.
func (t *target) close() {
	if t.direct != nil {
		t.direct.Cut()
		t.direct.Close()
	}
	if now := t.ways.Load(); now != nil {
		now.close()
	}
}

func (t *target) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return t.connections.dial(ctx, t.place, network, address)
}

// proxy is that of the environment for servers that have a URL: one knows no Services.
func (t *target) proxy(r *http.Request) (*url.URL, error) {
	switch {
	case t.base == nil:
		return nil, nil
	case t.given != nil:
		return http.ProxyFromEnvironment(r)
	}
	return t.connections.Proxy(r)
}

// resolve returns where the server is now, with the path before that of a request.
func (t *target) resolve() (*url.URL, error) {
	switch {
	case t.wrong != nil:
		return nil, t.wrong
	case t.base == nil:
		return t.connections.resolve(t.place)
	case t.direct != nil:
		return t.base, nil
	}
	if ip, err := netip.ParseAddr(t.base.Hostname()); err == nil && t.given == nil {
		if err := t.connections.CheckAddress(ip); err != nil { // before a proxy could be asked
			return nil, err
		}
	}
	return t.base, nil
}

// address is where the server is, for people.
func (t *target) address() string {
	switch {
	case t.direct != nil:
		return "in this process"
	case t.base != nil:
		return t.base.String()
	}
	if at, err := t.connections.resolve(t.place); err == nil {
		return at.String()
	}
	return ""
}

// aliveTimeout is how long a server may take for a TLS handshake. A process that is
// frozen, or a machine that is gone, takes longer; a server that works on its answers does not.
const aliveTimeout = 900 * time.Millisecond

// alive returns an error if nobody answers at the server's address: a connection is made, and
// no request is sent.
func (t *target) alive(ctx context.Context, at *url.URL) error {
	if t.direct != nil {
		return nil
	}
	if via, err := t.proxy(&http.Request{URL: at}); via != nil || err != nil {
		return err // what is behind a proxy cannot be told from it
	}
	ctx, cancel := context.WithTimeout(ctx, aliveTimeout)
	defer cancel()
	address := at.Host
	if at.Port() == "" {
		address = net.JoinHostPort(at.Hostname(), "443")
	}
	conn, err := t.dial(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := tls.Client(conn, t.tls.Clone()).HandshakeContext(ctx); err != nil {
		return fmt.Errorf("connect to %s: %w", at.Host, err)
	}
	return nil
}
