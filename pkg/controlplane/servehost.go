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
	a := &hostServer{handler: h}
	if h != nil {
		a.Serve(h)
	}
	p.hosts = append(p.hosts, named[*hostServer]{p.part, host, a})
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

// hostServer is a handler and the transport to it.
type hostServer struct {
	loopback.Transport
	handler http.Handler
}

// checkHosts finds hosts with two handlers, and nil handlers.
func (p *Plan) checkHosts() []error {
	handlers := make([]named[http.Handler], 0, len(p.hosts))
	for _, a := range p.hosts {
		handlers = append(handlers, named[http.Handler]{a.part, a.name, a.value.handler})
	}
	return duplicates("handler of host", handlers)
}
