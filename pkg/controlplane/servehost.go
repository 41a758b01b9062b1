package controlplane

import (
	"net"
	"net/http"

	"github.com/sailplane-dev/sailplane/pkg/internal/loopback"
)

// ServeHost has a handler in the process answer the requests that the plane makes to a
// host: to admission and conversion webhooks with a URL at "hooks.example.com:443",
// or with a Service, whose host is "NAME.NAMESPACE.svc" with its port. The port is
// 443 if it is left out. There is no connection, no TLS and no certificate.
//
// Users who may write webhook configurations or CRDs can make the plane post a
// review to any path of the handler.
func (p *Plan) ServeHost(host string, h http.Handler) {
	if _, _, err := net.SplitHostPort(host); err != nil {
		host = net.JoinHostPort(host, "443")
	}
	var way *loopback.Transport // nil is an error of Build
	if !nilValue(h) {
		way = &loopback.Transport{}
		way.Serve(h)
	}
	p.hosts = append(p.hosts, named[*loopback.Transport]{p.part, host, way})
}

// closeHosts waits for handlers that still run. Watch caches convert objects
// until they end: call it after them.
func (p *Plan) closeHosts() {
	for _, a := range p.hosts {
		a.value.Close()
	}
}

// HostTransport returns the transport to the handler that answers for a host and port
// (see [Plan.ServeHost]), nil if there is none. Parts ask for it when they call a
// webhook, not before: later parts may add handlers.
func (p *Plan) HostTransport(host string) http.RoundTripper {
	for _, a := range p.hosts {
		if a.name == host {
			return a.value
		}
	}
	return nil
}
