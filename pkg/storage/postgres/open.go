package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/internal/remote"
	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
)

const (
	// retryConnect is how long a start waits before it asks an unreachable database again.
	retryConnect = 500 * time.Millisecond
	closeTimeout = 10 * time.Second
	// heartbeat is how long nothing may be heard of a database before it is asked whether it is there.
	heartbeat = 5 * time.Second
	// defaultPoll is how often a server looks for changes that it is not told of.
	defaultPoll = 20 * time.Millisecond
	// openingLock is the advisory lock of servers that make the tables.
	openingLock = 7_347_011_836_462_205_771
)

// open connects, and makes the tables if they are missing.
func open(ctx context.Context, d DB) (*database, error) {
	config, secrets, err := d.config()
	if err != nil {
		return nil, err
	}
	db, err := connect(ctx, d, config)
	if err != nil {
		return nil, remote.Redact(err, secrets)
	}
	return db, nil
}

func connect(ctx context.Context, d DB, config *pgxpool.Config) (*database, error) {
	pooled, err := reach(ctx, d.login().Timeout(), config.ConnConfig)
	if err != nil {
		return nil, err
	}
	poll := d.PollInterval
	if pooled {
		// A pooler hands each transaction to another session: prepared statements and LISTEN do not
		// work.
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		poll = cmp.Or(poll, defaultPoll)
		klog.FromContext(ctx).Info("The database is behind a pooler of connections, which does not pass notifications on: "+
			"looking for changes", "storage", d.String(), "every", poll)
	} else { // a pooler would hand the session on to others
		config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			if _, err := conn.Exec(ctx, withoutJIT); err != nil {
				return err
			}
			return verify(ctx, conn)
		}
	}
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), config)
	if err != nil {
		return nil, err
	}
	db := &database{pool: pool, poll: poll}
	err = pool.QueryRow(ctx, channel).Scan(&db.channel)
	if err == nil {
		err = db.prepare(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// config describes the connections.
func (d DB) config() (*pgxpool.Config, []string, error) {
	u, secrets, err := d.address()
	if err != nil {
		return nil, nil, err
	}
	config, err := pgxpool.ParseConfig(u.String())
	if err != nil {
		return nil, nil, remote.Redact(err, secrets)
	}
	config.MaxConns = int32(d.Connections)
	config.AfterConnect = verify
	// The credentials are read again: a password or certificate may be another one now.
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		u, secrets, err := d.address()
		if err != nil {
			return err
		}
		fresh, err := pgx.ParseConfig(u.String())
		if err != nil {
			return remote.Redact(err, secrets)
		}
		c.Password, c.TLSConfig, c.Fallbacks = fresh.Password, fresh.TLSConfig, fresh.Fallbacks
		return nil
	}
	return config, secrets, nil
}

// verify looks whether a connection leads to the database from which the log is. After a failover or
// a restore it does not: revisions that were seen may be missing there, and would be used again.
func verify(ctx context.Context, conn *pgx.Conn) error {
	var now, origin string
	err := conn.QueryRow(ctx, timeline).Scan(&now, &origin)
	var failure *pgconn.PgError
	if errors.As(err, &failure) || errors.Is(err, pgx.ErrNoRows) {
		return nil // there is no log yet, or the database does not say
	}
	if err != nil || now == origin {
		return err
	}
	done, err := conn.Exec(ctx, moveTo, now, int64(revision.Skipped))
	if err == nil && origin != "" && done.RowsAffected() > 0 {
		klog.FromContext(ctx).Error(nil, "The database has failed over or was restored, and may lack its last changes: "+
			"revisions go on far above them, and all watches begin anew", "timeline", now, "before", origin)
	}
	return err
}

// address is the URL with everything that the description adds to it.
func (d DB) address() (*url.URL, []string, error) {
	u, secrets, err := d.login().Resolve([]string{"postgres", "postgresql"})
	if err != nil {
		return nil, nil, err
	}
	if strings.Trim(u.Path, "/") == "" {
		return nil, nil, errors.New("the URL names no database: postgres://user@host/database")
	}
	query := u.Query()
	for name, value := range map[string]string{
		"connect_timeout":      strconv.Itoa(max(1, int(d.login().Timeout()/time.Second))),
		"target_session_attrs": "primary", "application_name": "sailplane",
		"sslrootcert": d.CAFile, "sslcert": d.CertFile, "sslkey": d.KeyFile,
	} {
		if value != "" && !query.Has(name) {
			query.Set(name, value)
		}
	}
	if d.CAFile != "" && !query.Has("sslmode") {
		query.Set("sslmode", "verify-full")
	}
	u.RawQuery = query.Encode()
	return u, secrets, nil
}

// reach connects once, and tries again until the timeout is over. A database that is missing is
// created. It tells whether there is a pooler in between.
func reach(ctx context.Context, timeout time.Duration, config *pgx.ConnConfig) (pooled bool, err error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var last error
	for {
		conn, err := pgx.ConnectConfig(limited, config)
		if err == nil {
			pooled, err = isPooled(limited, conn)
			return pooled, errors.Join(err, conn.Close(limited))
		}
		var refused *pgconn.PgError
		if errors.As(err, &refused) {
			switch refused.Code {
			case pgerrcode.InvalidCatalogName:
				return false, create(limited, config)
			case pgerrcode.InvalidPassword, pgerrcode.InvalidAuthorizationSpecification:
				return false, fmt.Errorf("the database refuses the user: %w", err)
			}
		}
		// A timeout says less than the error before it.
		if last == nil || limited.Err() == nil {
			last = err
		}
		select {
		case <-time.After(retryConnect):
		case <-limited.Done():
			return false, fmt.Errorf("no answer within %v: %w; check that it runs, and that its address and the certificates are right",
				timeout, errors.Join(context.Cause(ctx), last))
		}
	}
}

// isPooled tells whether somebody else answered: the process that a connection is told of is not the
// one that runs its statements.
func isPooled(ctx context.Context, conn *pgx.Conn) (bool, error) {
	var pid uint32
	err := conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid)
	return pid != conn.PgConn().PID(), err
}

// create creates the database.
func create(ctx context.Context, config *pgx.ConnConfig) (err error) {
	other := config.Copy()
	other.Database = "postgres"
	conn, err := pgx.ConnectConfig(ctx, other)
	if err != nil {
		return fmt.Errorf("the database %s does not exist: create it: %w", config.Database, err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	_, err = conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{config.Database}.Sanitize())
	var exists *pgconn.PgError
	if errors.As(err, &exists) && (exists.Code == pgerrcode.DuplicateDatabase || exists.Code == pgerrcode.UniqueViolation) {
		return nil // another server was first
	}
	if err != nil {
		return fmt.Errorf("create the database %s: %w", config.Database, err)
	}
	return nil
}

// prepare makes the tables. Where they are, it changes nothing and needs no right to.
func (d *database) prepare(ctx context.Context) error {
	var ours, kines bool
	if err := d.pool.QueryRow(ctx, hasTables).Scan(&ours, &kines); err != nil || ours {
		return err
	}
	return pgx.BeginTxFunc(ctx, d.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(openingLock)); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, hasTables).Scan(&ours, &kines); err != nil || ours {
			return err
		}
		text := tables + begin
		if kines {
			text = upgrade + text
		}
		if _, err := tx.Exec(ctx, text, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("make the tables: %w", err)
		}
		return nil
	})
}
