package pki

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/utils/clock"
)

// issued is the name under which a ledger has a client's certificate that is kept
// nowhere.
const issued = "client"

// Issue returns an identity whose administrator is a client: a certificate that the
// folder's authority signs for the user and the groups of the request. Its key is kept
// nowhere, the certificate where [Dir.Issued] finds it. It ends after the lifetime, or
// with the authority. A folder without an authority is an error of kind [ErrMissing].
func (d Dir) Issue(ctx context.Context, req Request) (*Identity, error) {
	if req.Clock == nil {
		req.Clock = clock.RealClock{}
	}
	if _, err := d.existing(); err != nil {
		return nil, err
	}
	var id *Identity
	err := d.change(ctx, req.Clock, func(l *ledger) error {
		ca, err := l.authority()
		if err != nil {
			return err
		}
		client := adminLeaf(req.User, slices.Compact(slices.Sorted(slices.Values(req.Groups))), req.Lifetime) // none, where there are none
		client.name, client.renew = issued, 0
		cert, err := l.issue(ca, client, nil)
		if err != nil {
			return err
		}
		id = &Identity{CA: ca.bundle, AdminCert: l.files[issued+certExt], AdminKey: l.files[issued+keyExt], NotAfter: cert.NotAfter}
		l.changed = nil
		return l.record(cert)
	})
	return id, err
}

// Renew issues the serving certificate and the administrator's again, with the names
// that they have. The lifetime is that of the administrator's.
func (d Dir) Renew(ctx context.Context, lifetime time.Duration) error {
	if _, err := d.existing(); err != nil {
		return err
	}
	return d.change(ctx, clock.RealClock{}, func(l *ledger) error {
		ca, err := l.authority()
		if err != nil {
			return err
		}
		server, err := l.certs(serverName + certExt)
		if err != nil || len(server) == 0 {
			return errors.Join(err, missing(l.path(serverName+certExt)))
		}
		admin, err := l.certs(adminName + certExt)
		if err != nil || len(admin) == 0 {
			return errors.Join(err, missing(l.path(adminName+certExt)))
		}
		if _, err := l.issue(ca, servingLeaf(nil), server[0]); err != nil {
			return err
		}
		_, err = l.issue(ca, adminLeaf(admin[0].Subject.CommonName, admin[0].Subject.Organization, lifetime), admin[0])
		return err
	})
}

// Certificates are those of the folder's files, in the order of the file names: the first
// of each, which is the one in use.
func (d Dir) Certificates() (map[string]*x509.Certificate, error) {
	files, err := d.existing()
	if err != nil {
		return nil, err
	}
	l := &ledger{dir: string(d), files: files}
	all := map[string]*x509.Certificate{}
	for _, name := range []string{caCert, serverName + certExt, adminName + certExt} {
		certs, err := l.certs(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.path(name), err)
		}
		if len(certs) > 0 {
			all[l.path(name)] = certs[0]
		}
	}
	return all, nil
}

// existing returns the files of a folder that has an authority.
func (d Dir) existing() (map[string][]byte, error) {
	path := filepath.Join(string(d), caCert)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, missing(path)
	}
	return readFiles(string(d), allNames())
}

func missing(path string) error {
	return fmt.Errorf("%s: %w: start a server with this folder first, or name its folder", path, ErrMissing)
}
