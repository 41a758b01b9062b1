package pki

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/sailplane-dev/sailplane/pkg/internal/filelock"
)

// The administrator that a [Request] names when it names nobody.
const (
	// DefaultUser is the common name of the administrator's certificate.
	DefaultUser = "sailplane-admin"
	// DefaultGroup is its organization: the group that RBAC lets do everything
	// (https://kubernetes.io/docs/reference/access-authn-authz/rbac/#user-facing-roles).
	DefaultGroup = "system:masters"
)

// The files of a folder.
const (
	caCert     = "ca.crt"
	caKey      = "ca.key"
	serverName = "server" // server.crt, server.key
	adminName  = "admin"  // admin.crt, admin.key
	certExt    = ".crt"
	keyExt     = ".key"
	lockFile   = ".lock"
)

// Dir is the folder that keeps an identity: ca.crt, ca.key, server.crt, server.key,
// admin.crt, admin.key, a lock file, and, once they are needed, revoked.crl and issued.crt. Give it a folder of its own: to start over,
// delete the folder. It is created with mode 0700 and every file with 0600. The
// empty Dir keeps nothing: each Load makes a new identity in memory.
type Dir string

// Request is what an identity must contain. The zero value is a server reached only
// on this machine and the default administrator.
type Request struct {
	// Hosts are the names and IP addresses by which clients reach the server, in
	// addition to localhost, 127.0.0.1 and ::1. Names that an earlier request
	// put in the serving certificate stay in it.
	Hosts []string
	// User is the administrator's user name. Empty means [DefaultUser].
	User string
	// Groups are the administrator's groups. Empty means [DefaultGroup].
	Groups []string
	// Lifetime is how long the administrator's certificate is valid. Empty means
	// [DefaultLifetime].
	Lifetime time.Duration
	// Clock tells the time. Nil means the machine's clock.
	Clock clock.PassiveClock
}

// Load returns the identity kept in the folder and issues what is missing from
// it. A leaf certificate is issued again, with a new key, when it expires within
// 30 days (the administrator's: a third of its lifetime), was revoked, does not chain
// to the authority, does not belong to its key, or lacks what the request asks for. Errors name the file and say what to do; they are
// of kind [ErrCorrupt], [ErrMissing], [ErrMismatch], [ErrValidity],
// [ErrAuthority] or [ErrHost], or come from the file system. The context ends the wait for another process
// that is busy with the same folder.
func (d Dir) Load(ctx context.Context, req Request) (*Identity, error) {
	if req.Clock == nil {
		req.Clock = clock.RealClock{}
	}
	if d == "" {
		return (&ledger{now: req.Clock.Now(), files: map[string][]byte{}}).identity(req)
	}
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return nil, fmt.Errorf("create certificate folder %s: %w", d, err)
	}
	var id *Identity
	err := d.change(ctx, req.Clock, func(l *ledger) (err error) {
		id, err = l.identity(req)
		return err
	})
	if err != nil {
		return nil, err
	}
	return id, nil
}

// Ensure makes the authority if the folder has none, and tells whether it did.
func (d Dir) Ensure(ctx context.Context) (made bool, err error) {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return false, fmt.Errorf("create certificate folder %s: %w", d, err)
	}
	err = d.change(ctx, clock.RealClock{}, func(l *ledger) error {
		_, err := l.authority()
		made = len(l.changed) > 0
		return err
	})
	return made, err
}

// Change locks the folder, calls a function with the content of those of the named files that exist,
// and writes what it changes in the map.
func (d Dir) Change(ctx context.Context, names []string, f func(files map[string][]byte) error) error {
	return d.locked(ctx, func() error {
		files, err := readFiles(string(d), names)
		if err != nil {
			return err
		}
		before := maps.Clone(files)
		if err := f(files); err != nil {
			return err
		}
		var changed []file
		for _, name := range names {
			if data, ok := files[name]; ok && !bytes.Equal(data, before[name]) {
				changed = append(changed, file{name, data})
			}
		}
		if err := writeFiles(string(d), changed); err != nil {
			return fmt.Errorf("write certificate folder %s: %w", d, err)
		}
		return nil
	})
}

// locked calls a function while this process has the folder for itself.
func (d Dir) locked(ctx context.Context, f func() error) error {
	lock, err := filelock.Wait(ctx, filepath.Join(string(d), lockFile))
	if err != nil {
		return fmt.Errorf("lock certificate folder: %w", err)
	}
	defer func() { _ = lock.Release() }() // of a file that was only locked
	return f()
}

// change locks the folder, and writes what a function changed of its content.
func (d Dir) change(ctx context.Context, c clock.PassiveClock, f func(*ledger) error) error {
	dir := string(d)
	return d.locked(ctx, func() error {
		// The writer of a temporary file held the lock, so it is dead by now.
		removeTemps(dir, allNames(), 0)
		files, err := readFiles(dir, allNames())
		if err != nil {
			return err
		}
		l := &ledger{dir: dir, now: c.Now(), files: files}
		if err := f(l); err != nil {
			return err
		}
		if err := writeFiles(dir, l.changed); err != nil {
			return fmt.Errorf("write certificate folder %s: %w", dir, err)
		}
		return nil
	})
}

// fileNames returns the names of the files that hold an identity.
func fileNames() []string {
	return []string{caKey, caCert, serverName + keyExt, serverName + certExt, adminName + keyExt, adminName + certExt}
}

// allNames returns the names of all files of a folder.
func allNames() []string { return append(fileNames(), revokedFile, issuedFile) }

// State is the content of the folder's certificates and revocation lists: load them
// again when it has changed. It reads no keys: with a new key comes a new certificate.
func (d Dir) State() ([]byte, error) {
	ca, err := os.ReadFile(filepath.Join(string(d), caCert))
	if err != nil {
		return nil, err
	}
	server, err := os.ReadFile(filepath.Join(string(d), serverName+certExt))
	// The others may be missing.
	admin, _ := os.ReadFile(filepath.Join(string(d), adminName+certExt))
	revoked, _ := os.ReadFile(filepath.Join(string(d), revokedFile))
	return slices.Concat(ca, server, admin, revoked), err
}

// readFiles returns those of the named files that exist.
func readFiles(dir string, names []string) (map[string][]byte, error) {
	files := make(map[string][]byte)
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read certificate folder: %w", err)
		}
		files[name] = data
	}
	return files, nil
}

// groups returns the administrator's groups, sorted and without repetition.
func (r Request) groups() []string {
	if len(r.Groups) == 0 {
		return []string{DefaultGroup}
	}
	return slices.Compact(slices.Sorted(slices.Values(r.Groups)))
}
