package authn

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"

	"github.com/sailplane-dev/sailplane/pkg/internal/pki"
)

// Login is what a kubeconfig is made for.
type Login struct {
	// User is the user's name. Required.
	User string
	// Groups are the groups the user is in. Empty: none.
	Groups []string
	// Lifetime is how long the certificate is valid, at most as long as that of its
	// authority. [Admin.Revoke] ends it before. Empty: 8 hours.
	Lifetime time.Duration
	// Server is the URL of the server. Empty: that of the administrator's kubeconfig.
	Server string
	// CAFile is a file with authorities, in PEM, that the client trusts besides the
	// server's own: those of a certificate that the server was given. Optional.
	CAFile string
}

const defaultLifetime = 8 * time.Hour

// Issue returns a kubeconfig with a client certificate of the authority in Dir, and
// when it ends. The server need not run. Its key is kept nowhere: who has the
// kubeconfig is the user, until it ends or is revoked.
func (a Admin) Issue(l Login) (kubeconfig []byte, end time.Time, err error) {
	if l.User == "" {
		return nil, end, errors.New("field User: is empty: name the user")
	}
	if l.Lifetime < 0 {
		return nil, end, fmt.Errorf("field Lifetime: %v: want a duration above 0, such as 8h", l.Lifetime)
	}
	if l.Lifetime == 0 {
		l.Lifetime = defaultLifetime
	}
	if l.Server == "" {
		if l.Server, err = a.server(); err != nil {
			return nil, end, fmt.Errorf("field Server: is empty, and %w", err)
		}
	}
	id, err := a.issue(pki.Request{User: l.User, Groups: l.Groups, Lifetime: l.Lifetime})
	if err != nil {
		return nil, end, err
	}
	config := id.Kubeconfig(l.Server, "")
	if l.CAFile != "" {
		certs, err := certutil.CertsFromFile(l.CAFile)
		if err != nil {
			return nil, end, fmt.Errorf("field CAFile: %w", err)
		}
		further, err := certutil.EncodeCertificates(certs...) // and not a key that the file has as well
		if err != nil {
			return nil, end, fmt.Errorf("field CAFile: %s: %w", l.CAFile, err)
		}
		for _, cluster := range config.Clusters {
			cluster.CertificateAuthorityData = slices.Concat(bytes.TrimSpace(cluster.CertificateAuthorityData), []byte("\n"), further)
		}
	}
	kubeconfig, err = clientcmd.Write(*config)
	return kubeconfig, id.NotAfter, err
}

// server is the URL in the administrator's kubeconfig.
func (a Admin) server() (string, error) {
	config, err := clientcmd.LoadFromFile(a.Kubeconfig)
	if err != nil {
		return "", err
	}
	if c := config.Clusters[pki.DefaultContext]; c != nil && c.Server != "" {
		return c.Server, nil
	}
	return "", fmt.Errorf("%s names no server", a.Kubeconfig)
}

// Renew issues the serving certificate and the administrator's again. A running server
// takes them within seconds, and connections stay open. Clients know the authority,
// which stays.
func (a Admin) Renew(ctx context.Context) error {
	return pki.Dir(a.dir()).Renew(ctx, cmp.Or(a.Lifetime, pki.DefaultLifetime))
}

// issueTimeout is how long Issue waits for another process that is busy with the folder.
const issueTimeout = time.Minute

func (a Admin) issue(req pki.Request) (*pki.Identity, error) {
	ctx, cancel := context.WithTimeout(context.Background(), issueTimeout)
	defer cancel()
	return pki.Dir(a.dir()).Issue(ctx, req)
}

// Revoke ends the certificate with a serial number before its time, whether Issue made
// it, or it is one of the administrator's, who gets another. A running server refuses it
// within seconds. Requests that run, such as watches, end by themselves.
func (a Admin) Revoke(ctx context.Context, serial *big.Int) error {
	return pki.Dir(a.dir()).Revoke(ctx, serial)
}

// Signed tells whether the authority in Dir signed a certificate. Revoke has no effect on
// others, which servers with other authorities accept.
func (a Admin) Signed(cert *x509.Certificate) (bool, error) {
	return pki.Dir(a.dir()).Signed(cert)
}

// ClientCertificate is a certificate that the authority in Dir signed for a client.
type ClientCertificate struct {
	*x509.Certificate
	// Revoked says that it is refused although it has not ended.
	Revoked bool
}

// ClientCertificates are that of the administrator and those that Issue made, as long as
// they are valid.
func (a Admin) ClientCertificates() ([]ClientCertificate, error) {
	dir := pki.Dir(a.dir())
	all, err1 := dir.Certificates()
	issued, err2 := dir.Issued()
	revoked, err3 := dir.Revoked()
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	for _, file := range slices.Sorted(maps.Keys(all)) {
		if slices.Contains(all[file].ExtKeyUsage, x509.ExtKeyUsageClientAuth) {
			issued = slices.Insert(issued, 0, all[file])
		}
	}
	var valid []ClientCertificate
	for _, cert := range issued {
		if time.Now().Before(cert.NotAfter) {
			valid = append(valid, ClientCertificate{Certificate: cert, Revoked: revoked.Has(cert)})
		}
	}
	return valid, nil
}

// Certificates are those in Dir, by the path of their file.
func (a Admin) Certificates() (map[string]*x509.Certificate, error) {
	return pki.Dir(a.dir()).Certificates()
}

// dir is the folder of the keys and certificates; empty if there is none.
func (a Admin) dir() string {
	if a.Dir == "" && a.Kubeconfig != "" {
		return filepath.Join(filepath.Dir(a.Kubeconfig), "pki")
	}
	return a.Dir
}
