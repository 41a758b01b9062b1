package authn

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
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
	// authority. Nothing ends it before. Empty: 8 hours.
	Lifetime time.Duration
	// Server is the URL of the server. Empty: that of the administrator's kubeconfig.
	Server string
	// CAFile is a file with authorities, in PEM, that the client trusts besides the
	// server's own: those of a certificate that the server was given. Optional.
	CAFile string
}

const defaultLifetime = 8 * time.Hour

// Issue returns a kubeconfig with a client certificate of the authority in Dir, and
// when it ends. The server need not run. Nothing is kept of it: who has the
// kubeconfig is the user until it ends.
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
	id, err := pki.Dir(a.dir()).Issue(pki.Request{User: l.User, Groups: l.Groups}, l.Lifetime)
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
func (a Admin) Renew(ctx context.Context) error { return pki.Dir(a.dir()).Renew(ctx) }

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
