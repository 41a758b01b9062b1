package controlplane

import (
	"net"
	"net/http"

	"github.com/sailplane-dev/sailplane/pkg/internal/loopback"
)

// Answer has a handler in the process answer what the plane asks of a host, in
// place of connecting to it: admission and conversion webhooks with a URL at
// "hooks.example.com:443", or with a Service, whose host is "NAME.NAMESPACE.svc"
// with its port. The port is 443 if it is left out. There is no TLS, and no
// certificate is asked for.
//
// Whoever may write webhook configurations or CRDs can have the plane post a
// review to any path of the handler.
func (p *Plan) Answer(host string, h http.Handler) {
	if _, _, err := net.SplitHostPort(host); err != nil {
		host = net.JoinHostPort(host, "443")
	}
	a := &answer{handler: h}
	if h != nil {
		a.Serve(h)
	}
	p.answers = append(p.answers, named[*answer]{p.part, host, a})
}

// closeAnswers waits for handlers that still answer. Watch caches have objects
// converted until they end: call it after them.
func (p *Plan) closeAnswers() {
	for _, a := range p.answers {
		a.value.Close()
	}
}

// Answering is the way to the handler that answers for a host and port (see
// [Plan.Answer]), nil if there is none. It is for parts that ask webhooks, when
// they ask: other parts may still be added before.
func (p *Plan) Answering(host string) http.RoundTripper {
	for _, a := range p.answers {
		if a.name == host {
			return a.value
		}
	}
	return nil
}

// answer is a handler and the way to it.
type answer struct {
	loopback.Transport
	handler http.Handler
}

// checkAnswers finds hosts that are answered for twice, or by nothing.
func (p *Plan) checkAnswers() []error {
	handlers := make([]named[http.Handler], 0, len(p.answers))
	for _, a := range p.answers {
		handlers = append(handlers, named[http.Handler]{a.part, a.name, a.value.handler})
	}
	return duplicates("answers of host", handlers)
}
