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
	use := func(_ context.Context, content []byte) error { return c.set(content, content) }
	file := &follow.File{Source: follow.Source{What: "serving certificate", File: s.CertFile, Read: s.read, Use: use}}
	p.Certify(file.Name(), func(ctx context.Context) (dynamiccertificates.SNICertKeyContentProvider, error) {
		return c, file.Begin(ctx)
	})
	p.Root().Work(followWork(file)) // also without a listener: files that cannot be used are a mistake
	return nil
}

// read returns the certificates and the key in one: PEM readers pick their blocks.
func (s ServingCertificate) read(string) ([]byte, error) {
	certs, err := os.ReadFile(s.CertFile)
	if err != nil {
		return nil, err
	}
	key, err := secretfile.Read(s.KeyFile)
	if err != nil {
		return nil, err
	}
	return append(append(certs, '\n'), key...), nil
}

// certificate is the current certificate and its key.
type certificate struct {
	notifier
	name  string
	names []string
	now   atomic.Pointer[certAndKey]
}

type certAndKey struct{ cert, key []byte }

// A listener can present a certificate.
var _ dynamiccertificates.SNICertKeyContentProvider = (*certificate)(nil)

// set replaces the certificate, if the new one and its key belong together.
func (c *certificate) set(cert, key []byte) error {
	if _, err := tls.X509KeyPair(cert, key); err != nil {
		return fmt.Errorf("%s: %w: give a certificate and the key that belongs to it", c.name, err)
	}
	c.now.Store(&certAndKey{cert, key})
	c.notify()
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
