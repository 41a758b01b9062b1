// Package postgres keeps a server's objects in PostgreSQL, with kine's driver.
// docs/storage/kine.md says what does not hold there.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/k3s-io/kine/pkg/drivers"
	"github.com/k3s-io/kine/pkg/drivers/pgsql"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/kine"
)

// DB is a database of PostgreSQL that runs somewhere else. Its URL is that of
// libpq, postgres://user@host:port/name?sslmode=verify-full, and names the
// database, which is created if it is missing and the user may create it.
// Without a password the driver looks in the environment (PGPASSWORD) and
// ~/.pgpass, as every client of PostgreSQL does.
type DB kine.Remote

var _ controlplane.Storage = DB{}

// String leaves the credentials out.
func (d DB) String() string { return kine.Remote(d).Name("postgres") }

// Traits implements controlplane.Storage. PostgreSQL syncs to disk unless its
// synchronous_commit says otherwise.
func (DB) Traits() controlplane.Traits {
	return controlplane.Traits{Engine: "postgresql", Shared: true, Durable: true}
}

// Open implements controlplane.Storage.
func (d DB) Open() controlplane.Backend {
	return kine.Open(kine.Driver{
		Name: d.String(), Remote: kine.Remote(d), Schemes: []string{"postgres", "postgresql"}, Limits: kine.LimitsOfSQL,
		New: pgsql.New, Config: d.config, Check: check,
	})
}

// config describes the database in kine's form: without the scheme.
func (d DB) config(u *url.URL, config *drivers.Config) error {
	if strings.Trim(u.Path, "/") == "" {
		return errors.New("the URL names no database: postgres://user@host/database")
	}
	u.Path = strings.ToLower(u.Path) // as kine does
	query := u.Query()
	for name, value := range map[string]string{
		"connect_timeout": strconv.Itoa(max(1, int(kine.Remote(d).Timeout()/time.Second))),
		"sslrootcert":     d.CAFile, "sslcert": d.CertFile, "sslkey": d.KeyFile,
	} {
		if value != "" && !query.Has(name) {
			query.Set(name, value)
		}
	}
	if d.CAFile != "" && !query.Has("sslmode") {
		query.Set("sslmode", "verify-full")
	}
	u.RawQuery = query.Encode()
	config.DataSourceName = strings.TrimPrefix(u.String(), u.Scheme+"://")
	return nil
}

// check connects once. A missing database is no error: kine creates it.
func check(ctx context.Context, config drivers.Config) error {
	parsed, err := pgx.ParseConfig("postgres://" + config.DataSourceName)
	if err != nil {
		return fmt.Errorf("%w: %w", kine.ErrRefused, err)
	}
	conn, err := pgx.ConnectConfig(ctx, parsed)
	if err == nil {
		return conn.Close(ctx)
	}
	answer := (*pgconn.PgError)(nil)
	switch {
	case !errors.As(err, &answer):
		return err
	case answer.Code == missingDatabase:
		return nil
	case strings.HasPrefix(answer.Code, badLogin):
		return fmt.Errorf("%w: %w; check the user and the password", kine.ErrRefused, err)
	}
	return err
}

// Codes of https://www.postgresql.org/docs/current/errcodes-appendix.html: one
// error, and a class of them.
const (
	missingDatabase = "3D000"
	badLogin        = "28"
)
