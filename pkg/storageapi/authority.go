package storageapi

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/sailplane-dev/sailplane/pkg/internal/pki"
)

const (
	authorityName = "sailplane-etcd-storage"
	authorityLife = 10 * 365 * 24 * time.Hour
	// backdate makes a new certificate valid for servers whose clock is slow.
	backdate = 5 * time.Minute
)

// authority signs the certificates of tenants, and nothing else: no authenticator of the API trusts it,
// and what it signs is good for clients only.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// newAuthority makes an authority.
func newAuthority(now time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the private key of the client certificate authority: %w", err)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: authorityName},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the client certificate authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make the client certificate authority: %w", err)
	}
	return &authority{cert: cert, key: key}, nil
}

// parseAuthority reads what encode wrote.
func parseAuthority(certificate, key []byte) (*authority, error) {
	certs, err := certutil.ParseCertsPEM(certificate)
	if err != nil {
		return nil, fmt.Errorf("client certificate authority: read its certificate: %w", err)
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(key)
	if err != nil {
		return nil, fmt.Errorf("client certificate authority: read its private key: %w", err)
	}
	signer, ok := parsed.(crypto.Signer)
	switch cert := certs[0]; {
	case len(certs) > 1:
		return nil, fmt.Errorf("client certificate authority: it has %d certificates, not one", len(certs))
	case !cert.BasicConstraintsValid || !cert.IsCA || cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return nil, errors.New("client certificate authority: its certificate is not one that may sign others")
	case !ok || !belongs(signer, cert):
		return nil, errors.New("client certificate authority: the private key does not belong to its certificate")
	}
	return &authority{cert: certs[0], key: signer}, nil
}

// belongs reports whether a private key is that of a certificate.
func belongs(key crypto.Signer, cert *x509.Certificate) bool {
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(cert.PublicKey)
}

// encode returns the certificate and the private key in PEM.
func (a *authority) encode() (certificate, key []byte, err error) {
	if key, err = keyutil.MarshalPrivateKeyToPEM(a.key); err != nil {
		return nil, nil, fmt.Errorf("encode the private key of the client certificate authority: %w", err)
	}
	return encodeCertificate(a.cert.Raw), key, nil
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: der})
}

// sign makes a key, and a certificate for a tenant that is valid from now on: for so long, or until the
// end of the authority.
func (a *authority) sign(t tenantID, life time.Duration, now time.Time) (certificate, key []byte, err error) {
	if err := t.check(); err != nil {
		return nil, nil, err
	}
	if !now.Before(a.cert.NotAfter) {
		return nil, nil, fmt.Errorf("the client certificate authority ended on %s: it needs a successor",
			a.cert.NotAfter.Format(time.DateOnly))
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make the private key of %s: %w", t, err)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: t.name},
		URIs:                  t.uris(),
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(life),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	if a.cert.NotAfter.Before(template.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, private.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("sign the certificate of %s: %w", t, err)
	}
	if key, err = keyutil.MarshalPrivateKeyToPEM(private); err != nil {
		return nil, nil, fmt.Errorf("encode the private key of %s: %w", t, err)
	}
	return encodeCertificate(der), key, nil
}

// identify returns the tenant whose certificate a client showed, the first of certs. One of roots must
// have signed it itself: what else the client showed does not count.
func identify(certs, roots []*x509.Certificate, now time.Time) (tenantID, error) {
	if len(certs) == 0 {
		return tenantID{}, errors.New("the client has no certificate")
	}
	cert, pool := certs[0], x509.NewCertPool()
	for _, root := range roots {
		pool.AddCert(root)
	}
	if _, err := cert.Verify(x509.VerifyOptions{
		Roots: pool, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err != nil {
		return tenantID{}, fmt.Errorf("the client's certificate: %w", err)
	}
	// A certificate without usages is good for all of them, and each authority verifies itself.
	if cert.IsCA || !slices.Equal(cert.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) {
		return tenantID{}, errors.New("the client's certificate: it is not for clients alone")
	}
	if len(cert.URIs) != 1 || len(cert.DNSNames)+len(cert.IPAddresses)+len(cert.EmailAddresses) > 0 {
		return tenantID{}, errors.New("the client's certificate: its alternative name is not one URI")
	}
	t, err := parseTenantID(cert.URIs[0])
	if err == nil && cert.Subject.CommonName != t.name {
		err = fmt.Errorf("its common name is %q, not that of %s", cert.Subject.CommonName, t)
	}
	if err != nil {
		return tenantID{}, fmt.Errorf("the client's certificate: %w", err)
	}
	return t, nil
}

// trusted are the authorities whose client certificates the listener asks for, none at first.
type trusted struct {
	pki.Listeners
	now atomic.Pointer[authorities]
}

type authorities struct {
	dynamiccertificates.CAContentProvider
	certs []*x509.Certificate
}

var _ dynamiccertificates.CAContentProvider = (*trusted)(nil)

// set replaces the authorities by those in PEM, and tells listeners if that is a change.
func (t *trusted) set(content []byte) error {
	if bytes.Equal(content, t.CurrentCABundleContent()) && len(content) > 0 {
		return nil
	}
	certs, err := certutil.ParseCertsPEM(content)
	if err != nil {
		return fmt.Errorf("%s: %w", t.Name(), err)
	}
	provider, err := dynamiccertificates.NewStaticCAContent(t.Name(), content)
	if err != nil {
		return fmt.Errorf("%s: %w", t.Name(), err)
	}
	t.now.Store(&authorities{CAContentProvider: provider, certs: certs})
	t.Notify()
	return nil
}

// roots are the authorities. Do not modify.
func (t *trusted) roots() []*x509.Certificate {
	if now := t.now.Load(); now != nil {
		return now.certs
	}
	return nil
}

// Name implements dynamiccertificates.CAContentProvider.
func (t *trusted) Name() string { return "client certificate authorities of etcd storages" }

// CurrentCABundleContent implements dynamiccertificates.CAContentProvider.
func (t *trusted) CurrentCABundleContent() []byte {
	if now := t.now.Load(); now != nil {
		return now.CAContentProvider.CurrentCABundleContent()
	}
	return nil
}

// VerifyOptions implements dynamiccertificates.CAContentProvider.
func (t *trusted) VerifyOptions() (x509.VerifyOptions, bool) {
	if now := t.now.Load(); now != nil {
		return now.CAContentProvider.VerifyOptions()
	}
	return x509.VerifyOptions{}, false
}
