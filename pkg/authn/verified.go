package authn

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"time"
	"weak"

	"golang.org/x/sync/singleflight"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

// How many certificates are remembered, and how long. A connection has one.
const (
	rememberedCertificates = 4096
	rememberedFor          = time.Minute
)

// verified remembers whom a connection's certificate belongs to, or that it is
// refused: verifying it takes a sixth of the time of a create, and a client sends
// many requests over one connection. An answer is never valid longer than the
// certificate. It ends with the authorities, for which another verified is made.
type verified struct {
	authenticator.Request
	authorities []*x509.Certificate
	// known and refused have answers by the certificate of one connection, which they do
	// not keep in memory. They are two, so that strangers push out nobody who is known.
	known, refused *lru.Cache
	// asking has the requests of a connection wait for one of them.
	asking singleflight.Group
	clock  clock.PassiveClock
}

// answer is whom a certificate belongs to, or why to nobody, and until when.
type answer struct {
	response *authenticator.Response
	ok       bool
	err      error
	until    time.Time
}

// remember asks an authenticator about the certificates that lead to the authorities.
func remember(a authenticator.Request, authorities []*x509.Certificate) *verified {
	return &verified{
		Request: a, authorities: authorities,
		known: lru.New(rememberedCertificates), refused: lru.New(rememberedCertificates), clock: clock.RealClock{},
	}
}

// AuthenticateRequest implements authenticator.Request.
func (v *verified) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	if req.TLS == nil || len(req.TLS.PeerCertificates) == 0 || len(v.authorities) == 0 {
		return v.Request.AuthenticateRequest(req)
	}
	// The TLS stack parses a certificate once per connection, and shares it with
	// connections that resume: the pointer stands for the chain presented there.
	leaf := weak.Make(req.TLS.PeerCertificates[0])
	if kept, ok := v.remembered(leaf); ok {
		return kept.response, kept.ok, kept.err
	}
	asked, _, _ := v.asking.Do(fmt.Sprintf("%p", req.TLS.PeerCertificates[0]), func() (any, error) {
		if kept, ok := v.remembered(leaf); ok {
			return kept, nil // another request was quicker
		}
		fresh := v.verify(req)
		table := v.refused
		if fresh.ok {
			table = v.known
		}
		table.Add(leaf, fresh)
		return fresh, nil
	})
	got := asked.(answer)
	return got.response, got.ok, got.err
}

// remembered is the answer that holds for a certificate, if there is one.
func (v *verified) remembered(leaf weak.Pointer[x509.Certificate]) (answer, bool) {
	for _, table := range []*lru.Cache{v.known, v.refused} {
		if kept, ok := table.Get(leaf); ok && v.clock.Now().Before(kept.(answer).until) {
			return kept.(answer), true
		}
	}
	return answer{}, false
}

// verify verifies the chain of a request.
func (v *verified) verify(req *http.Request) answer {
	presented, now := req.TLS.PeerCertificates, v.clock.Now()
	a := answer{until: change(presented, now, now.Add(rememberedFor))}
	chain, err := anchored(presented, v.authorities)
	if err != nil {
		a.err = err
		return a
	}
	state := *req.TLS
	state.PeerCertificates = chain
	req = req.WithContext(req.Context())
	req.TLS = &state
	a.response, a.ok, a.err = v.Request.AuthenticateRequest(req)
	a.ok = a.ok && a.err == nil
	return a
}

// change is when the validity of the chain changes first, at most until.
func change(chain []*x509.Certificate, now, until time.Time) time.Time {
	for _, c := range chain {
		for _, t := range []time.Time{c.NotBefore, c.NotAfter} {
			if t.After(now) && t.Before(until) {
				until = t
			}
		}
	}
	return until
}
