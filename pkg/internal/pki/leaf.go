package pki

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"slices"
	"time"
)

// leaf is a certificate that the authority signs.
type leaf struct {
	// name is the base of the names of its two files.
	name  string
	usage x509.ExtKeyUsage
	// life is how long it is valid, and renew how long before its end another is issued.
	life, renew time.Duration
	// fits reports whether an existing certificate meets the request.
	fits func(*x509.Certificate) bool
	// fill completes a template. old is the certificate to be replaced, or nil.
	fill func(template, old *x509.Certificate)
}

// servingLeaf is a server's certificate for hosts, and for the hosts of the
// certificate before.
func servingLeaf(hosts []string) leaf {
	return leaf{
		name:  serverName,
		usage: x509.ExtKeyUsageServerAuth,
		life:  leafLife, renew: RenewBefore,
		fits: func(cert *x509.Certificate) bool {
			return !slices.ContainsFunc(hosts, func(host string) bool { return cert.VerifyHostname(host) != nil })
		},
		fill: func(template, old *x509.Certificate) {
			template.Subject = pkix.Name{CommonName: "sailplane-server"}
			if old != nil {
				template.DNSNames = slices.Clone(old.DNSNames)
				template.IPAddresses = slices.Clone(old.IPAddresses)
			}
			for _, host := range hosts {
				addHost(template, host)
			}
		},
	}
}

// adminLeaf is a client's certificate. Kubernetes reads the user from the common
// name and the groups from the organizations
// (https://kubernetes.io/docs/reference/access-authn-authz/authentication/#x509-client-certificates).
func adminLeaf(user string, groups []string, life time.Duration) leaf {
	return leaf{
		name:  adminName,
		usage: x509.ExtKeyUsageClientAuth,
		life:  life, renew: life / 3,
		fits: func(cert *x509.Certificate) bool {
			// Organizations are a set in the encoding: their order is not ours.
			have := slices.Sorted(slices.Values(cert.Subject.Organization))
			return cert.Subject.CommonName == user && slices.Equal(have, groups)
		},
		fill: func(template, _ *x509.Certificate) {
			template.Subject = pkix.Name{CommonName: user, Organization: groups}
		},
	}
}

// leaf returns the folder's certificate, or a new one if that does not fit.
func (l *ledger) leaf(ca *authority, want leaf) (*x509.Certificate, error) {
	certFile, keyFile := want.name+certExt, want.name+keyExt
	certs, err := l.certs(certFile)
	if err != nil {
		return nil, l.issueAgain(certFile, want, err)
	}
	key, err := l.key(keyFile)
	if err != nil {
		return nil, l.issueAgain(keyFile, want, err)
	}
	var old *x509.Certificate
	if len(certs) > 0 {
		old = certs[0]
	}
	revoked, err := l.revoked()
	if err != nil {
		return nil, err
	}
	if old != nil && key != nil && belongs(key, old) && l.due(old, want) == nil && l.verify(ca, old, want.usage) == nil &&
		!revoked.Has(old) && want.fits(old) {
		return old, nil
	}
	return l.issue(ca, want, old)
}

// due returns why a certificate has to be renewed already.
func (l *ledger) due(cert *x509.Certificate, want leaf) error {
	if !l.now.Add(want.renew).Before(cert.NotAfter) {
		return fmt.Errorf("it expires on %s", cert.NotAfter.Format(time.DateOnly))
	}
	// One of an earlier version, or of a longer lifetime. A clock may be wrong by a day.
	const slack = 24 * time.Hour
	if cert.NotAfter.After(l.now.Add(want.life + slack)) {
		return fmt.Errorf("it lasts until %s, longer than %v", cert.NotAfter.Format(time.DateOnly), want.life)
	}
	return nil
}

// verify returns why a certificate does not chain to the authority.
func (l *ledger) verify(ca *authority, cert *x509.Certificate, usage x509.ExtKeyUsage) error {
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	_, err := cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: l.now, KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

// issue makes a new key and certificate. The key is written first: a crash leaves a
// pair that does not match, which is issued again.
func (l *ledger) issue(ca *authority, want leaf, old *x509.Certificate) (*x509.Certificate, error) {
	key, err := l.newKey(want.name + keyExt)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		NotBefore:             l.now.Add(-backdate),
		NotAfter:              l.now.Add(want.life),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{want.usage},
		BasicConstraintsValid: true,
	}
	if ca.cert.NotAfter.Before(template.NotAfter) {
		template.NotAfter = ca.cert.NotAfter
	}
	want.fill(template, old)
	cert, err := l.sign(want.name+certExt, template, ca.cert, key.Public(), ca.key)
	if err != nil {
		return nil, err
	}
	// An authority made elsewhere may be restricted in what it can sign.
	err = l.verify(ca, cert, want.usage)
	if err == nil {
		err = l.due(cert, want)
	}
	if err != nil {
		return nil, l.startOver(caCert, fmt.Errorf("%w: it cannot sign %s: %w", ErrAuthority, want.name+certExt, err))
	}
	return cert, nil
}

// issueAgain adds the way out to an error about one of a leaf's files.
func (l *ledger) issueAgain(name string, want leaf, err error) error {
	return fmt.Errorf("%s: %w: delete %s and %s to have them issued again",
		l.path(name), err, l.path(want.name+certExt), l.path(want.name+keyExt))
}

// addHost adds a host to a certificate's subject alternative names, once.
func addHost(template *x509.Certificate, host string) {
	ip := net.ParseIP(host)
	switch {
	case ip == nil:
		if !slices.Contains(template.DNSNames, host) {
			template.DNSNames = append(template.DNSNames, host)
		}
	case !slices.ContainsFunc(template.IPAddresses, ip.Equal):
		template.IPAddresses = append(template.IPAddresses, ip)
	}
}
