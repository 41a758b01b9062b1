package certificates

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/sailplane-dev/sailplane/pkg/internal/check"
)

const (
	// backdate lets clients whose clock is slow trust a new certificate.
	backdate = 5 * time.Minute
	// short: a certificate for less than this gets the full duration from now;
	// for a longer one the duration includes backdate, as in
	// kube-controller-manager.
	short = 8 * time.Hour
)

// authority is a certificate authority.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// authority returns what was given, or reads the files.
func (s Signer) authority() (*authority, error) {
	if s.Certificate != nil {
		return &authority{s.Certificate, s.Key}, nil
	}
	data, err := os.ReadFile(s.CertificateFile)
	if err != nil {
		return nil, fmt.Errorf("field CertificateFile: %w", err)
	}
	certificates, err := certutil.ParseCertsPEM(data)
	if err != nil {
		return nil, fmt.Errorf("field CertificateFile: %s: %w", s.CertificateFile, err)
	}
	if data, err = os.ReadFile(s.KeyFile); err != nil {
		return nil, fmt.Errorf("field KeyFile: %w", err)
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(data)
	if err != nil {
		return nil, fmt.Errorf("field KeyFile: %s: %w", s.KeyFile, err)
	}
	key, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("field KeyFile: %s: a %T cannot sign", s.KeyFile, parsed)
	}
	if err := checkAuthority(certificates[0], key); err != nil {
		return nil, fmt.Errorf("%s and %s: %w", s.CertificateFile, s.KeyFile, err)
	}
	return &authority{certificates[0], key}, nil
}

// checkAuthority checks that clients which trust the certificate will trust
// what the key signs.
func checkAuthority(certificate *x509.Certificate, key crypto.Signer) error {
	if !certificate.IsCA || certificate.KeyUsage != 0 && certificate.KeyUsage&x509.KeyUsageCertSign == 0 {
		return fmt.Errorf("the certificate %q is not a CA certificate: it must have CA:TRUE and the usage cert sign",
			certificate.Subject)
	}
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(certificate.PublicKey) {
		return fmt.Errorf("the key does not belong to the certificate %q", certificate.Subject)
	}
	return nil
}

// requestError tells why a request can never be signed; any other error may be temporary.
type requestError struct{ error }

// issue signs a request and returns the certificate in PEM.
func (s Signer) issue(r *csr, now time.Time) ([]byte, error) {
	template, public, err := s.template(r)
	if err != nil {
		return nil, requestError{err}
	}
	ca, err := s.authority()
	if err != nil {
		return nil, err
	}
	if !now.Before(ca.certificate.NotAfter) {
		return nil, fmt.Errorf("the certificate authority expired at %v: replace it", ca.certificate.NotAfter)
	}
	lasts := s.validity(r.Spec.ExpirationSeconds)
	template.NotBefore, template.NotAfter = now.Add(-backdate), now.Add(lasts)
	if lasts >= short {
		template.NotAfter = template.NotBefore.Add(lasts)
	}
	if template.NotAfter.After(ca.certificate.NotAfter) {
		template.NotAfter = ca.certificate.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.certificate, public, ca.key)
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// validity is how long a certificate is valid.
func (s Signer) validity(asked *int32) time.Duration {
	if asked == nil {
		return s.Duration
	}
	return min(s.Duration, time.Duration(max(*asked, shortest))*time.Second)
}

// template takes what the client may choose, and nothing else: of the
// extensions in the request, only the names go into the certificate. Package
// x509 picks a random serial number.
func (s Signer) template(r *csr) (*x509.Certificate, any, error) {
	parsed, err := parse(r)
	if err != nil {
		return nil, nil, err
	}
	if err := parsed.CheckSignature(); err != nil {
		return nil, nil, err
	}
	if err := s.checkRequest(r, parsed); err != nil {
		return nil, nil, err
	}
	t := &x509.Certificate{
		Subject:  parsed.Subject,
		DNSNames: parsed.DNSNames, IPAddresses: parsed.IPAddresses,
		EmailAddresses: parsed.EmailAddresses, URIs: parsed.URIs,
		BasicConstraintsValid: true,
	}
	known := knownUsages()
	for _, name := range r.Spec.Usages {
		u, ok := known[name]
		if !ok {
			return nil, nil, fmt.Errorf("unknown usage: %q", name)
		}
		t.KeyUsage |= u.key
		for _, e := range u.extended {
			if !slices.Contains(t.ExtKeyUsage, e) {
				t.ExtKeyUsage = append(t.ExtKeyUsage, e)
			}
		}
	}
	return t, parsed.PublicKey, nil
}

// checkAllowed applies what the fields of the signer say.
func (s Signer) checkAllowed(r *csr, parsed *x509.CertificateRequest) error {
	const remedy = "ask for another, or have it added to field %s of the signer"
	if name := parsed.Subject.CommonName; !check.AllowedName(name, s.CommonNames) {
		return fmt.Errorf("the signer %s does not sign the common name %q: "+remedy, s.Name, name, "CommonNames")
	}
	for _, name := range parsed.Subject.Organization {
		if !check.AllowedName(name, s.Organizations) {
			return fmt.Errorf("the signer %s does not sign the organization %q: "+remedy, s.Name, name, "Organizations")
		}
	}
	known := knownUsages()
	for _, name := range r.Spec.Usages {
		same := func(u certificatesv1.KeyUsage) bool { // "signing" is "digital signature"
			return known[u].key == known[name].key && slices.Equal(known[u].extended, known[name].extended)
		}
		if _, ok := known[name]; ok && !slices.ContainsFunc(s.Usages, same) {
			return fmt.Errorf("the signer %s does not sign the usage %q: "+remedy, s.Name, name, "Usages")
		}
	}
	// Programs accept a certificate without any extended usage for all of them
	// (RFC 5280, section 4.2.1.12).
	extended := func(u certificatesv1.KeyUsage) bool { return len(known[u].extended) > 0 }
	said := func(u certificatesv1.KeyUsage) bool { _, ok := known[u]; return !ok || extended(u) } // what is unknown is refused later
	if slices.ContainsFunc(s.Usages, extended) && !slices.ContainsFunc(r.Spec.Usages, said) {
		return fmt.Errorf("the signer %s signs nothing that says not what it is for: ask for one of its extended usages, "+
			"such as %q", s.Name, s.Usages[slices.IndexFunc(s.Usages, extended)])
	}
	return nil
}

// checkRequest applies the rules of this signer, and those of the well-known one of
// Kubernetes:
// https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/#kubernetes-signers
func (s Signer) checkRequest(r *csr, parsed *x509.CertificateRequest) error {
	client := s.Name == certificatesv1.KubeAPIServerClientSignerName
	for _, name := range r.Spec.Usages {
		switch name {
		case certificatesv1.UsageCertSign, certificatesv1.UsageCRLSign:
			return fmt.Errorf("invalid usage for a certificate that is not a CA: %s", name)
		case certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth:
		default:
			if client {
				return fmt.Errorf("invalid usage for client certificate: %s", name)
			}
		}
	}
	if client && !slices.Contains(r.Spec.Usages, certificatesv1.UsageClientAuth) {
		return fmt.Errorf("missing required usage for client certificate: %s", certificatesv1.UsageClientAuth)
	}
	if err := s.checkAllowed(r, parsed); err != nil || !client {
		return err
	}
	if slices.Contains(parsed.Subject.Organization, user.SystemPrivilegedGroup) {
		return errors.New("a client certificate must not name the group " + user.SystemPrivilegedGroup)
	}
	return nil
}
