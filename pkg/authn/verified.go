package authn

import (
	"crypto/x509"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

// How many certificates are remembered, and how long. A connection has one.
const (
	rememberedCertificates = 4096
	rememberedFor          = time.Minute
)

// verified remembers whom a connection's certificate belongs to: verifying it
// takes a sixth of the time of a create, and a client sends many requests over
// one connection. An answer is never valid longer than the certificate.
type verified struct {
	authenticator.Request
	known *lru.Cache // *x509.Certificate, of one connection -> answer
	clock clock.PassiveClock
}

// answer is whom a certificate belongs to, and until when.
type answer struct {
	response *authenticator.Response
	until    time.Time
}

func remember(a authenticator.Request) authenticator.Request {
	return &verified{Request: a, known: lru.New(rememberedCertificates), clock: clock.RealClock{}}
}

// AuthenticateRequest implements authenticator.Request.
func (v *verified) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	if req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return v.Request.AuthenticateRequest(req)
	}
	// The TLS stack parses a certificate once per connection, and shares it with
	// connections that resume: the pointer stands for the chain presented there.
	leaf, now := req.TLS.PeerCertificates[0], v.clock.Now()
	if kept, ok := v.known.Get(leaf); ok && now.Before(kept.(answer).until) {
		return kept.(answer).response, true, nil
	}
	response, ok, err := v.Request.AuthenticateRequest(req)
	if ok && err == nil {
		v.known.Add(leaf, answer{response: response, until: earliest(req.TLS.PeerCertificates, now.Add(rememberedFor))})
	}
	return response, ok, err
}

func earliest(chain []*x509.Certificate, until time.Time) time.Time {
	for _, c := range chain {
		if c.NotAfter.Before(until) {
			until = c.NotAfter
		}
	}
	return until
}
