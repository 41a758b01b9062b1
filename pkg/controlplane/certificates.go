package controlplane

import (
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/authenticator"
)

// checkChain refuses what would cost much to verify: long chains, and large keys. It
// verifies nothing itself. Keys of other kinds than RSA have bounds of their own.
func (l Limits) checkChain(chain []*x509.Certificate) error {
	if n := len(chain); l.CertificateChain != Unlimited && n > l.CertificateChain {
		return fmt.Errorf("the client presents %d certificates, the limit is %d: leave out those that the authority does not need",
			n, l.CertificateChain)
	}
	if l.CertificateKeyBits == Unlimited {
		return nil
	}
	for i, c := range chain {
		if key, ok := c.PublicKey.(*rsa.PublicKey); ok && key.N.BitLen() > l.CertificateKeyBits {
			return fmt.Errorf("certificate %d of the client has an RSA key of %d bits, the limit is %d: use a smaller key, or ECDSA",
				i, key.N.BitLen(), l.CertificateKeyBits)
		}
	}
	return nil
}

// certificateBytes is how long a client's part of a handshake may be. Go parses certificates
// before it asks verifyConnection, up to 256 KiB of them.
func (l Limits) certificateBytes() int {
	const (
		each = 8 << 10  // those with RSA keys of 4096 bits have 2 KiB
		more = 16 << 10 // a record of the first request may come with it
	)
	if l.CertificateChain == Unlimited {
		return Unlimited
	}
	return l.CertificateChain*each + more
}

// verifyConnection is a tls.Config.VerifyConnection: it ends handshakes before the
// client's signature is looked at. Authenticators verify certificates later.
func (l Limits) verifyConnection(state tls.ConnectionState) error {
	return l.checkChain(state.PeerCertificates)
}

// bounded refuses certificates also where a listener of the program's own took them.
func (l Limits) bounded(a authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		if r.TLS != nil {
			if err := l.checkChain(r.TLS.PeerCertificates); err != nil {
				return nil, false, err
			}
		}
		return a.AuthenticateRequest(r)
	})
}
