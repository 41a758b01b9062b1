package pki

import (
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"time"

	certutil "k8s.io/client-go/util/cert"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour
	// DefaultLifetime is how long the administrator's certificate is valid: a copy of it
	// that is lost ends soon.
	DefaultLifetime = 30 * 24 * time.Hour
	// RenewBefore is how long before its end a certificate counts as ended. It
	// is the same for the authority and the serving certificate: no leaf outlives its
	// authority, so with less for the authority its last leaves would be issued
	// again at every start. That of the administrator is renewed when a third of its
	// lifetime is left.
	RenewBefore = 30 * 24 * time.Hour
	// backdate makes a new certificate valid for clients whose clock is slow.
	backdate = 5 * time.Minute
)

// authority is the certificate and key that sign the leaves.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	// bundle is the certificates of the file in PEM, without anything else in it.
	bundle []byte
}

// authority returns the folder's authority, or a new one when it has none.
func (l *ledger) authority() (*authority, error) {
	certs, err := l.certs(caCert)
	if err != nil {
		return nil, l.startOver(caCert, err)
	}
	key, err := l.key(caKey)
	if err != nil {
		return nil, l.startOver(caKey, err)
	}
	if len(certs) == 0 {
		return l.newAuthority(key)
	}
	ca := &authority{cert: certs[0], key: key}
	if file, err := l.checkAuthority(ca); err != nil {
		return nil, l.startOver(file, err)
	}
	if ca.bundle, err = certutil.EncodeCertificates(certs...); err != nil {
		return nil, fmt.Errorf("encode %s: %w", l.path(caCert), err)
	}
	return ca, nil
}

// newAuthority makes an authority. A crash between the two files leaves a key
// without a certificate: it uses that key, so that what an earlier certificate of
// the key signed stays valid.
func (l *ledger) newAuthority(key crypto.Signer) (*authority, error) {
	if key == nil {
		var err error
		if key, err = l.newKey(caKey); err != nil {
			return nil, err
		}
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "sailplane-ca"},
		NotBefore:             l.now.Add(-backdate),
		NotAfter:              l.now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	cert, err := l.sign(caCert, template, nil, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key, bundle: l.files[caCert]}, nil
}

// checkAuthority returns the file that makes an authority unusable, and the reason.
func (l *ledger) checkAuthority(ca *authority) (string, error) {
	usage := ca.cert.KeyUsage
	switch {
	case !ca.cert.BasicConstraintsValid || !ca.cert.IsCA || (usage != 0 && usage&x509.KeyUsageCertSign == 0):
		return caCert, fmt.Errorf("%w: it is not marked as one", ErrAuthority)
	case ca.key == nil:
		return caKey, fmt.Errorf("%w: there is only %s", ErrMissing, caCert)
	case !belongs(ca.key, ca.cert):
		return caKey, fmt.Errorf("%w %s", ErrMismatch, l.path(caCert))
	case l.now.Before(ca.cert.NotBefore):
		return caCert, fmt.Errorf("%w: it is not valid before %s: check the clock of this machine",
			ErrValidity, ca.cert.NotBefore.Format(time.DateOnly))
	case !l.now.Add(RenewBefore).Before(ca.cert.NotAfter):
		return caCert, fmt.Errorf("%w: it expires on %s", ErrValidity, ca.cert.NotAfter.Format(time.DateOnly))
	}
	return "", nil
}

// startOver adds the way out to an error about one of the authority's files.
func (l *ledger) startOver(name string, err error) error {
	return fmt.Errorf("%s: %w: restore the file, or delete folder %s to start with a new identity", l.path(name), err, l.dir)
}
