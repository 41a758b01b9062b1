package pki

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"path/filepath"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// ledger is the content of a folder while it is checked and completed. It does no
// I/O, so that tests can give it any content.
type ledger struct {
	// dir is the folder, for error messages.
	dir string
	// now is the time against which certificates are judged.
	now time.Time
	// files is the content by file name.
	files map[string][]byte
	// changed are the files to write, in this order.
	changed []file
}

// identity returns the identity that answers the request, issuing what is missing.
func (l *ledger) identity(req Request) (*Identity, error) {
	hosts, err := servingHosts(req.Hosts)
	if err != nil {
		return nil, err
	}
	ca, err := l.authority()
	if err != nil {
		return nil, err
	}
	server, err := l.leaf(ca, servingLeaf(hosts))
	if err != nil {
		return nil, err
	}
	admin, err := l.leaf(ca, adminLeaf(cmp.Or(req.User, DefaultUser), req.groups(), cmp.Or(req.Lifetime, DefaultLifetime)))
	if err != nil {
		return nil, err
	}
	id := &Identity{
		CA:         ca.bundle,
		ServerCert: l.files[serverName+certExt],
		ServerKey:  l.files[serverName+keyExt],
		AdminCert:  l.files[adminName+certExt],
		AdminKey:   l.files[adminName+keyExt],
		Revoked:    l.files[revokedFile],
		NotAfter:   server.NotAfter,
		Renew:      server.NotAfter.Add(-RenewBefore),
	}
	if admin.NotAfter.Before(id.NotAfter) {
		id.NotAfter = admin.NotAfter
	}
	if renew := admin.NotAfter.Add(-cmp.Or(req.Lifetime, DefaultLifetime) / 3); renew.Before(id.Renew) {
		id.Renew = renew
	}
	return id, nil
}

// put sets a file's content and notes that it must be written.
func (l *ledger) put(name string, data []byte) {
	l.files[name] = data
	l.changed = append(l.changed, file{name: name, data: data})
}

// path returns a file's path, for error messages.
func (l *ledger) path(name string) string { return filepath.Join(l.dir, name) }

// certs returns the certificates in a file, none when there is no such file.
func (l *ledger) certs(name string) ([]*x509.Certificate, error) {
	data, ok := l.files[name]
	if !ok {
		return nil, nil
	}
	certs, err := certutil.ParseCertsPEM(data)
	if err != nil {
		return nil, fmt.Errorf("%w: no certificate in PEM: %w", ErrCorrupt, err)
	}
	return certs, nil
}

// key returns the private key in a file, nil when there is no such file.
func (l *ledger) key(name string) (crypto.Signer, error) {
	data, ok := l.files[name]
	if !ok {
		return nil, nil
	}
	key, err := keyutil.ParsePrivateKeyPEM(data)
	if err != nil {
		return nil, fmt.Errorf("%w: no private key in PEM: %w", ErrCorrupt, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%w: a %T cannot sign", ErrCorrupt, key)
	}
	return signer, nil
}

// newKey makes a private key and notes it under name.
func (l *ledger) newKey(name string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make private key %s: %w", l.path(name), err)
	}
	data, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, fmt.Errorf("encode private key %s: %w", l.path(name), err)
	}
	l.put(name, data)
	return key, nil
}

// sign makes a certificate of the template and notes it under name. A nil
// parent makes the certificate sign itself.
func (l *ledger) sign(
	name string, template, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer,
) (*x509.Certificate, error) {
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		return nil, fmt.Errorf("issue certificate %s: %w", l.path(name), err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("issue certificate %s: %w", l.path(name), err)
	}
	l.put(name, pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: der}))
	return cert, nil
}

// belongs reports whether a private key is that of a certificate.
func belongs(key crypto.Signer, cert *x509.Certificate) bool {
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(cert.PublicKey)
}
