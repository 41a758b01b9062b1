package pki

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
)

// Files of a folder that are there once they are needed.
const (
	// revokedFile has certificate revocation lists in PEM (RFC 5280, section 5).
	revokedFile = "revoked.crl"
	// issuedFile has the certificates of [Dir.Issue] that have not ended.
	issuedFile = "issued.crt"
	listType   = "X509 CRL"
)

// Revocations are certificates that are not valid although they have not ended, by
// their issuer and serial number.
type Revocations map[string]bool

func revocation(issuer []byte, serial *big.Int) string {
	return string(issuer) + "\x00" + serial.String()
}

// Has tells whether a certificate was revoked.
func (r Revocations) Has(cert *x509.Certificate) bool {
	return len(r) > 0 && r[revocation(cert.RawIssuer, cert.SerialNumber)]
}

// ParseLists parses certificate revocation lists in PEM. Other blocks and no content at
// all are no error.
func ParseLists(content []byte) ([]*x509.RevocationList, error) {
	var lists []*x509.RevocationList
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != listType {
			continue
		}
		list, err := x509.ParseRevocationList(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%w: certificate revocation list: %w", ErrCorrupt, err)
		}
		lists = append(lists, list)
	}
	return lists, nil
}

// RevokedBy returns what lists revoke of what authorities signed. Lists of other
// authorities have no effect; one that an authority should have signed and has not is
// an error of kind [ErrCorrupt]. A list counts also when the next one is overdue.
func RevokedBy(lists []*x509.RevocationList, authorities []*x509.Certificate) (Revocations, error) {
	revoked := Revocations{}
	var errs []error
	for _, list := range lists {
		signer, err := signerOf(list, authorities)
		if err != nil {
			errs = append(errs, err)
		}
		if signer == nil {
			continue
		}
		for _, entry := range list.RevokedCertificateEntries {
			revoked[revocation(list.RawIssuer, entry.SerialNumber)] = true
		}
	}
	return revoked, errors.Join(errs...)
}

// signerOf returns the authority that signed a list, nil when it is another one.
func signerOf(list *x509.RevocationList, authorities []*x509.Certificate) (*x509.Certificate, error) {
	var wrong error
	for _, ca := range authorities {
		same := bytes.Equal(ca.RawSubject, list.RawIssuer) &&
			(len(list.AuthorityKeyId) == 0 || len(ca.SubjectKeyId) == 0 || bytes.Equal(ca.SubjectKeyId, list.AuthorityKeyId))
		if !same {
			continue
		}
		err := list.CheckSignatureFrom(ca)
		if err == nil {
			return ca, nil
		}
		wrong = fmt.Errorf("%w: certificate revocation list of %q: %w", ErrCorrupt, ca.Subject, err)
	}
	return nil, wrong
}

// Revoke adds a certificate of the folder's authority to its revocation list, by its
// serial number. Servers that follow the folder refuse it within seconds.
func (d Dir) Revoke(ctx context.Context, serial *big.Int) error {
	if _, err := d.existing(); err != nil {
		return err
	}
	return d.change(ctx, clock.RealClock{}, func(l *ledger) error { return l.revoke(serial) })
}

// Signed tells whether the folder's authority signed a certificate: whether it is one that
// [Dir.Revoke] takes back. Further authorities in the folder have lists of their own.
func (d Dir) Signed(cert *x509.Certificate) (bool, error) {
	files, err := d.existing()
	if err != nil {
		return false, err
	}
	l := &ledger{dir: string(d), files: files}
	authorities, err := l.certs(caCert)
	if err != nil {
		return false, l.startOver(caCert, err)
	}
	return len(authorities) > 0 && cert.CheckSignatureFrom(authorities[0]) == nil, nil // the first one signs
}

// Revoked are the certificates that the folder's lists revoke.
func (d Dir) Revoked() (Revocations, error) {
	files, err := d.existing()
	if err != nil {
		return nil, err
	}
	return (&ledger{dir: string(d), files: files}).revoked()
}

// Issued are the certificates of [Dir.Issue] that had not ended when the last one was
// issued, the oldest first.
func (d Dir) Issued() ([]*x509.Certificate, error) {
	files, err := d.existing()
	if err != nil {
		return nil, err
	}
	l := &ledger{dir: string(d), files: files}
	certs, err := l.certs(issuedFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.path(issuedFile), err)
	}
	return certs, nil
}

// lists are the revocation lists of the folder, and the authorities they may be of.
func (l *ledger) lists() ([]*x509.RevocationList, []*x509.Certificate, error) {
	lists, err := ParseLists(l.files[revokedFile])
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w: restore the file", l.path(revokedFile), err)
	}
	authorities, err := l.certs(caCert)
	if err != nil {
		return nil, nil, l.startOver(caCert, err)
	}
	return lists, authorities, nil
}

func (l *ledger) revoked() (Revocations, error) {
	lists, authorities, err := l.lists()
	if err != nil {
		return nil, err
	}
	revoked, err := RevokedBy(lists, authorities)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: restore the file", l.path(revokedFile), err)
	}
	return revoked, nil
}

// revoke signs the list of the authority again, with one more entry. Lists of further
// authorities in the folder stay; those of authorities that are gone have no effect.
func (l *ledger) revoke(serial *big.Int) error {
	ca, err := l.authority()
	if err != nil {
		return err
	}
	lists, authorities, err := l.lists()
	if err != nil {
		return err
	}
	template := &x509.RevocationList{
		Number: big.NewInt(1), ThisUpdate: l.now, NextUpdate: l.now.Add(authorityLife),
		RevokedCertificateEntries: []x509.RevocationListEntry{{SerialNumber: serial, RevocationTime: l.now}},
	}
	var content []byte
	for _, list := range lists {
		signer, err := signerOf(list, authorities)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w: restore the file", l.path(revokedFile), err)
		case signer == nil:
		case signer.Equal(ca.cert):
			same := func(e x509.RevocationListEntry) bool { return e.SerialNumber.Cmp(serial) == 0 }
			if slices.ContainsFunc(list.RevokedCertificateEntries, same) {
				return nil
			}
			template.RevokedCertificateEntries = append(template.RevokedCertificateEntries, list.RevokedCertificateEntries...)
			if list.Number != nil {
				template.Number.Add(list.Number, big.NewInt(1))
			}
		default:
			content = append(content, pem.EncodeToMemory(&pem.Block{Type: listType, Bytes: list.Raw})...)
		}
	}
	der, err := x509.CreateRevocationList(rand.Reader, template, ca.cert, ca.key)
	if err != nil {
		return l.startOver(caCert, fmt.Errorf("%w: it cannot revoke certificates: %w", ErrAuthority, err))
	}
	l.put(revokedFile, append(content, pem.EncodeToMemory(&pem.Block{Type: listType, Bytes: der})...))
	return nil
}

// record keeps a certificate that is handed out, and drops those that have ended.
func (l *ledger) record(cert *x509.Certificate) error {
	certs, err := l.certs(issuedFile)
	if err != nil {
		return fmt.Errorf("%s: %w: delete the file", l.path(issuedFile), err)
	}
	certs = slices.DeleteFunc(certs, func(c *x509.Certificate) bool { return l.now.After(c.NotAfter) })
	content, err := certutil.EncodeCertificates(append(certs, cert)...)
	if err != nil {
		return fmt.Errorf("encode %s: %w", l.path(issuedFile), err)
	}
	l.put(issuedFile, content)
	return nil
}
