// Package mysql keeps a server's objects in MySQL or MariaDB, with kine's driver.
// docs/storage/kine.md says what does not hold there.
package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/k3s-io/kine/pkg/drivers"
	driver "github.com/k3s-io/kine/pkg/drivers/mysql"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/kine"
)

// DB is a database of MySQL or MariaDB that runs somewhere else. The URL is
// mysql://user@host:3306/name?tls=true and names the database, which is created
// if it is missing and the user may create it. The query has parameters of
// github.com/go-sql-driver/mysql, and "socket", the path of a Unix socket to use
// in place of the host. CAFile turns TLS on too. One process uses one set of
// certificates: kine keeps them in a variable.
type DB kine.Remote

var _ controlplane.Storage = DB{}

// String leaves the credentials out.
func (d DB) String() string { return kine.Remote(d).Name("mysql") }

// Traits implements controlplane.Storage. MySQL syncs to disk unless its
// innodb_flush_log_at_trx_commit says otherwise.
func (DB) Traits() controlplane.Traits {
	return controlplane.Traits{Engine: "mysql", Shared: true, Durable: true}
}

// Open implements controlplane.Storage.
func (d DB) Open() controlplane.Backend {
	return kine.Open(kine.Driver{
		Name: d.String(), Remote: kine.Remote(d), Schemes: []string{"mysql"}, Limits: kine.LimitsOfSQL,
		New: driver.New, Config: d.config, Check: check,
	})
}

// config describes the database in the driver's form, which is not a URL.
func (d DB) config(u *url.URL, config *drivers.Config) error {
	name := strings.Trim(u.Path, "/")
	if name == "" {
		return errors.New("the URL names no database: mysql://user@host/database")
	}
	query := u.Query()
	network, address := "tcp", u.Host
	if u.Port() == "" {
		address = net.JoinHostPort(u.Hostname(), "3306")
	}
	if socket := query.Get("socket"); socket != "" {
		network, address = "unix", socket
	}
	query.Del("socket")
	dsn := mysql.NewConfig()
	dsn.User, dsn.Net, dsn.Addr, dsn.DBName = u.User.Username(), network, address, name
	dsn.Passwd, _ = u.User.Password()
	dsn.Timeout = kine.Remote(d).Timeout()
	config.DataSourceName = withParameters(dsn.FormatDSN(), query)
	if _, err := mysql.ParseDSN(config.DataSourceName); err != nil {
		return fmt.Errorf("parameters of the URL: %w", err)
	}
	return nil
}

// withParameters adds parameters to a DSN that the driver formatted.
func withParameters(dsn string, query url.Values) string {
	switch more := query.Encode(); {
	case more == "":
		return dsn
	case strings.Contains(dsn[strings.LastIndex(dsn, "/"):], "?"):
		return dsn + "&" + more
	default:
		return dsn + "?" + more
	}
}

// check connects once. A missing database is no error: kine creates it.
func check(ctx context.Context, config drivers.Config) error {
	dsn, err := mysql.ParseDSN(config.DataSourceName)
	if err != nil {
		return fmt.Errorf("%w: %w", kine.ErrRefused, err)
	}
	if dsn.TLS, err = config.BackendTLSConfig.ClientConfig(); err != nil {
		return fmt.Errorf("%w: read certificates: %w", kine.ErrRefused, err)
	}
	dsn.Logger = log.New(io.Discard, "", 0)
	connector, err := mysql.NewConnector(dsn)
	if err != nil {
		return fmt.Errorf("%w: %w", kine.ErrRefused, err)
	}
	db := sql.OpenDB(connector)
	err = errors.Join(db.PingContext(ctx), db.Close())
	answer := (*mysql.MySQLError)(nil)
	switch {
	case !errors.As(err, &answer):
		return err
	case answer.Number == missingDatabase:
		return nil
	case answer.Number == badLogin || answer.Number == badDatabase:
		return fmt.Errorf("%w: %w; check the user, the password and the privileges of the user", kine.ErrRefused, err)
	}
	return err
}

// Errors of https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html.
const (
	badDatabase     = 1044
	badLogin        = 1045
	missingDatabase = 1049
)
