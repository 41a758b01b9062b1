// Package mysql keeps a server's objects in a database of MariaDB or MySQL, which several servers
// may share. It is tested with MariaDB.
//
// A database that kine wrote is converted at the first start.
// Revisions come from a row that is locked until its transaction is committed: they are in the
// order of commits, whichever server writes. Concurrent writes of a server share a transaction,
// and so the time that the disk takes.
package mysql

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
	engine = "mysql"
	// defaultConnections is how many connections read unless told otherwise, and defaultPoll how
	// often a server looks for writes of others.
	defaultConnections = 8
	defaultPoll        = 20 * time.Millisecond
)

// DB is a database of MariaDB or MySQL that runs somewhere else.
type DB struct {
	// URL is mysql://user@host:3306/name?tls=true. It names the database, which is created if it is
	// missing and the user may create it. It may have the password; special characters in it need
	// percent-encoding. The query has parameters of github.com/go-sql-driver/mysql, and "socket",
	// the path of a Unix socket to use in place of the host.
	URL string
	// Password, or PasswordFile, has the password in place of the URL. Only its
	// owner and group may have access to the file; its last newline is ignored. It is read for
	// each connection, so that a password may change while the server runs.
	Password, PasswordFile string
	// CAFile has the certificates (PEM) that may have signed that of the database. With it, or
	// with CertFile, TLS is on, and the name of the server is verified. Empty: what the URL says.
	CAFile string
	// CertFile and KeyFile have the certificate and key (PEM) to log in with.
	// Empty: none.
	CertFile, KeyFile string
	// DialTimeout is how long a start waits for the database. 0: 10 s.
	DialTimeout time.Duration
	// Connections is how many connections read at most; one more writes. 0: 8.
	Connections int
	// HistoryBytes is how many bytes of old versions and deleted objects are kept
	// at most, for reads and watches of the past. A watch that is further behind
	// lists again. The API server drops what is older than some minutes in any
	// case. 0: 256 MiB.
	HistoryBytes int64
	// PollInterval is how often a server looks for writes of others. 0: 20 ms.
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
func (d DB) String() string { return d.login().Name("mysql") }

// Traits implements controlplane.Storage. MariaDB and MySQL sync to disk unless their
// innodb_flush_log_at_trx_commit says otherwise.
func (DB) Traits() controlplane.Traits {
	return controlplane.Traits{Engine: engine, Shared: true, CheapProgress: true, MaxOps: revision.MaxChanges, Durable: true}
}

// Open implements controlplane.Storage.
func (d DB) Open() controlplane.Backend { return d.OpenAbove(0) }

// OpenAbove implements controlplane.Raising.
func (d DB) OpenAbove(lost int64) controlplane.Backend {
	d.Connections = cmp.Or(d.Connections, defaultConnections)
	d.PollInterval = cmp.Or(d.PollInterval, defaultPoll)
	return sqllog.Backend(d.String(), d.HistoryBytes, lost, func(ctx context.Context) (sqllog.Database, error) { return open(ctx, d) })
}
