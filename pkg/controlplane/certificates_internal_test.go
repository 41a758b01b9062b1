package controlplane

import (
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net/http"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticator"
)

// TestBounded: what costs much to verify reaches no authenticator, also where a listener
// of the program's own took the connection.
func TestBounded(t *testing.T) {
	t.Parallel()
	certs := func(n, bits int) []*x509.Certificate {
		all := []*x509.Certificate{{PublicKey: &ecdsa.PublicKey{}}}
		for len(all) < n {
			all = append(all, &x509.Certificate{PublicKey: &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), uint(bits-1))}})
		}
		return all
	}
	for name, tc := range map[string]struct {
		reason string
		limits Limits
		state  *tls.ConnectionState
		want   bool
	}{
		"plain":        {"there is no certificate", Limits{}, nil, true},
		"none":         {"the client has none", Limits{}, &tls.ConnectionState{}, true},
		"most":         {"10 certificates and 4096 bits are usual", Limits{}, &tls.ConnectionState{PeerCertificates: certs(10, 4096)}, true},
		"long":         {"one more", Limits{}, &tls.ConnectionState{PeerCertificates: certs(11, 2048)}, false},
		"large":        {"one bit more", Limits{}, &tls.ConnectionState{PeerCertificates: certs(2, 4097)}, false},
		"other limits": {"the fields count", Limits{CertificateChain: 20, CertificateKeyBits: 8192}, &tls.ConnectionState{PeerCertificates: certs(20, 8192)}, true},
		"no limits":    {"nothing is limited", Limits{CertificateChain: Unlimited, CertificateKeyBits: Unlimited}, &tls.ConnectionState{PeerCertificates: certs(99, 8192)}, true},
	} {
		asked := false
		a := tc.limits.withDefaults().bounded(authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			asked = true
			return &authenticator.Response{}, true, nil
		}))
		_, ok, err := a.AuthenticateRequest(&http.Request{TLS: tc.state})
		if asked != tc.want || ok != tc.want || (err == nil) != tc.want {
			t.Errorf("%s: %s: asked %v, %v, %v; want %v", name, tc.reason, asked, ok, err, tc.want)
		}
	}
}
