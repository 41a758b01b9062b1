// Package postgres keeps a server's objects in a database of PostgreSQL, which several servers
// may share.
//
// A database that kine wrote is converted at the first start.
// Revisions come from a row that is locked until its transaction is committed: they are in the
// order of commits, whichever server writes. Concurrent writes of a server share a transaction,
// and so the time that the disk takes.
package postgres

import (
	"cmp"
	"context"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/remote"
	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
	"github.com/sailplane-dev/sailplane/pkg/internal/sqllog"
)

const (
	// engine is what metrics and health checks call the storage.
	engine = "postgresql"
	// defaultConnections is how many connections read unless told otherwise.
	defaultConnections = 8
)

// DB is a database of PostgreSQL that runs somewhere else.
type DB struct {
	// URL is that of libpq, postgres://user@host:port/name?sslmode=verify-full. It names the
	// database, which is created if it is missing and the user may create it. It may have the
	// password; special characters in it need percent-encoding. Without a password, PGPASSWORD
	// and ~/.pgpass are looked at, as by every client of PostgreSQL.
	URL string
	// Password, or PasswordFile, has the password in place of the URL. Only its
	// owner and group may have access to the file; its last newline is ignored. It is read for
	// each connection, so that a password may change while the server runs.
	Password, PasswordFile string
	// CAFile has the certificates (PEM) that may have signed that of the database. With it the
	// name of the server is verified, unless the URL says otherwise. Empty: what the URL says.
	CAFile string
	// CertFile and KeyFile have the certificate and key (PEM) to log in with.
	// Empty: none.
	CertFile, KeyFile string
	// DialTimeout is how long a start waits for the database. 0: 10 s.
	DialTimeout time.Duration
	// Connections is how many connections read at most; two more write and listen. 0: 8.
	Connections int
	// HistoryBytes is how many bytes of old versions and deleted objects are kept
	// at most, for reads and watches of the past. A watch that is further behind
	// lists again. The API server drops what is older than some minutes in any
	// case. 0: 256 MiB.
	HistoryBytes int64
	// PollInterval is how often a server looks for writes of others. 0: the database tells
	// (NOTIFY), which is sooner, and takes a lock of the whole database server while a
	// transaction is committed: set it where many databases share one.
	PollInterval time.Duration
}

var _ controlplane.Raising = DB{}

func (d DB) login() remote.Login {
	return remote.Login{
		URL: d.URL, Password: d.Password, PasswordFile: d.PasswordFile,
		CAFile: d.CAFile, CertFile: d.CertFile, KeyFile: d.KeyFile, DialTimeout: d.DialTimeout,
	}
}

// String leaves the credentials out.
func (d DB) String() string { return d.login().Name("postgres") }

// Traits implements controlplane.Storage. PostgreSQL syncs to disk unless its
// synchronous_commit says otherwise.
func (DB) Traits() controlplane.Traits {
	return controlplane.Traits{Engine: engine, Shared: true, CheapProgress: true, MaxOps: revision.MaxChanges, Durable: true}
}

// Open implements controlplane.Storage.
func (d DB) Open() controlplane.Backend { return d.OpenAbove(0) }

// OpenAbove implements controlplane.Raising.
func (d DB) OpenAbove(lost int64) controlplane.Backend {
	d.Connections = cmp.Or(d.Connections, defaultConnections)
	return sqllog.Backend(d.String(), d.HistoryBytes, lost, func(ctx context.Context) (sqllog.Database, error) { return open(ctx, d) })
}
