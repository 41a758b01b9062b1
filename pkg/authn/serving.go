package authn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/follow"
	"github.com/sailplane-dev/sailplane/pkg/internal/pki"
	"github.com/sailplane-dev/sailplane/pkg/internal/secretfile"
)

// ServingCertificate makes the server present a certificate from files, such as
// one of a public authority, to clients that ask for its names. Several may be
// given. With [Admin], clients that ask for other names or an address get Admin's
// certificate; without it, the first one given.
type ServingCertificate struct {
	// CertFile has the certificate and its intermediates in PEM. KeyFile has its
	// key; only its owner and group may have permissions on it. Changes take
	// effect within seconds for new connections, and open ones stay; files that
	// cannot be used change nothing and are logged. Required.
	CertFile, KeyFile string
	// Names are host names to use the certificate for besides its own;
	// "*.example.com" matches one level.
	Names []string
}

// PartName implements the name errors use.
func (ServingCertificate) PartName() string { return "authn.ServingCertificate" }

// Install implements controlplane.Part.
func (ServingCertificate) Install(*controlplane.Plan) error { return controlplane.ErrServerOnly }

// InstallServer declares the certificate and the work that follows its files.
func (s ServingCertificate) InstallServer(p *controlplane.ServerPlan) error {
	if s.CertFile == "" || s.KeyFile == "" {
		return errors.New("fields CertFile and KeyFile: one is empty: name PEM files with a certificate and its key")
	}
	c := &certificate{name: "serving certificate " + s.CertFile, names: s.Names}
	parse := func(content []byte) (*certAndKey, error) { return newCertAndKey(content, content) }
	source := follow.Source{What: "serving certificate", File: s.CertFile, Read: s.read}
	// Also without a listener: files that cannot be used are a mistake.
	file := followed(p.Root(), "fields CertFile and KeyFile", source, parse, c.use)
	p.Certify(file.Name(), func(ctx context.Context) (dynamiccertificates.SNICertKeyContentProvider, error) {
		return c, file.Begin(ctx)
	})
	return nil
}

// read returns the certificates and the key in one: PEM readers pick their blocks.
func (s ServingCertificate) read(string) ([]byte, error) {
	certs, err1 := os.ReadFile(s.CertFile)
	key, err2 := secretfile.Read(s.KeyFile)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	return append(append(certs, '\n'), key...), nil
}

// certificate is the current certificate and its key.
type certificate struct {
	pki.Listeners
	name  string
	names []string
	now   atomic.Pointer[certAndKey]
}

type certAndKey struct{ cert, key []byte }

// A listener can present a certificate.
var _ dynamiccertificates.SNICertKeyContentProvider = (*certificate)(nil)

// newCertAndKey checks that a certificate and a key in PEM belong together.
func newCertAndKey(cert, key []byte) (*certAndKey, error) {
	if _, err := tls.X509KeyPair(cert, key); err != nil {
		return nil, fmt.Errorf("%w: give a certificate and the key that belongs to it", err)
	}
	return &certAndKey{cert, key}, nil
}

// use replaces the certificate.
func (c *certificate) use(_ context.Context, next *certAndKey) error {
	c.now.Store(next)
	c.Notify()
	return nil
}

// Name implements dynamiccertificates.CertKeyContentProvider.
func (c *certificate) Name() string { return c.name }

// CurrentCertKeyContent implements dynamiccertificates.CertKeyContentProvider.
func (c *certificate) CurrentCertKeyContent() (cert, key []byte) {
	if now := c.now.Load(); now != nil {
		return now.cert, now.key
	}
	return nil, nil
}

// SNINames implements dynamiccertificates.SNICertKeyContentProvider.
func (c *certificate) SNINames() []string { return c.names }
