package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/internal/remote"
	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
)

const (
	// retryConnect is how long a start waits before it asks an unreachable database again.
	retryConnect = 500 * time.Millisecond
	// openingLock is the name of the lock of servers that make the tables, and openingSeconds how
	// long one waits for it.
	openingLock    = "sailplane"
	openingSeconds = 600
)

// Errors of https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html.
const (
	diskFull            = 1021
	writeFailed         = 1026
	badDatabase         = 1044
	badLogin            = 1045
	missingDatabase     = 1049
	tableFull           = 1114
	missingTable        = 1146
	lockTimeout         = 1205 // also of NOWAIT on MariaDB
	readOnlyServer      = 1290
	readOnlyTransaction = 1792
	readOnlyMode        = 1836
	lockNowait          = 3572
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

func connect(ctx context.Context, d DB, config *mysql.Config) (*database, error) {
	if err := reach(ctx, d.login().Timeout(), config); err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	connector = verified{connector}
	db := &database{reads: sql.OpenDB(connector), writes: sql.OpenDB(connector), poll: d.PollInterval}
	db.reads.SetMaxOpenConns(d.Connections)
	db.reads.SetMaxIdleConns(d.Connections)
	db.writes.SetMaxOpenConns(1)
	if err := db.prepare(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// verified looks whether a connection leads to the database from which the log is. After a failover
// it does not: revisions that were seen may be missing there, and would be used again.
type verified struct{ driver.Connector }

// Connect implements driver.Connector.
func (v verified) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := v.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := verify(ctx, conn.(driver.QueryerContext), conn.(driver.ExecerContext)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func verify(ctx context.Context, query driver.QueryerContext, exec driver.ExecerContext) error {
	rows, err := query.QueryContext(ctx, server, nil)
	var failure *mysql.MySQLError
	if errors.As(err, &failure) && failure.Number == missingTable {
		return nil
	} else if err != nil {
		return err
	}
	row := make([]driver.Value, 2)
	err = rows.Next(row)
	if err = errors.Join(err, rows.Close()); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		return err
	}
	now, origin := fmt.Sprintf("%s", row[0]), fmt.Sprintf("%s", row[1])
	if now == origin {
		return nil
	}
	done, err := exec.ExecContext(ctx, moveTo, []driver.NamedValue{
		{Ordinal: 1, Value: int64(revision.Skipped)}, {Ordinal: 2, Value: now}, {Ordinal: 3, Value: now},
	})
	if err != nil {
		return err
	}
	if n, err := done.RowsAffected(); err == nil && n > 0 && origin != "" {
		klog.FromContext(ctx).Error(nil, "The database has failed over, and may lack its last changes: "+
			"revisions go on far above them, and all watches begin anew", "server", now, "before", origin)
	}
	return nil
}

// config describes the connections.
func (d DB) config() (*mysql.Config, []string, error) {
	u, secrets, err := d.login().Resolve([]string{"mysql"})
	if err != nil {
		return nil, nil, err
	}
	config, err := d.parse(u)
	if err != nil {
		return nil, nil, remote.Redact(fmt.Errorf("parameters of the URL: %w", err), secrets)
	}
	if err := d.credentials(config); err != nil {
		return nil, nil, err
	}
	err = config.Apply(mysql.BeforeConnect(func(_ context.Context, c *mysql.Config) error { return d.credentials(c) }))
	return config, secrets, err
}

// parse turns the URL into a description of the driver.
func (d DB) parse(u *url.URL) (*mysql.Config, error) {
	name, query := strings.Trim(u.Path, "/"), u.Query()
	if name == "" {
		return nil, errors.New("the URL names no database: mysql://user@host/database")
	}
	socket := query.Get("socket")
	query.Del("socket")
	config, err := mysql.ParseDSN("/?" + query.Encode())
	if err != nil {
		return nil, err
	}
	config.User, config.DBName, config.Net, config.Addr = u.User.Username(), name, "tcp", u.Host
	if u.Port() == "" {
		config.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	if socket != "" {
		config.Net, config.Addr = "unix", socket
	}
	config.Timeout = d.login().Timeout()
	config.InterpolateParams, config.MultiStatements = true, true
	config.Logger = &mysql.NopLogger{}
	if config.Params == nil {
		config.Params = map[string]string{}
	}
	for name, value := range parameters() {
		if _, set := config.Params[name]; !set {
			config.Params[name] = value
		}
	}
	return config, nil
}

// parameters are variables of a session. A key that is too long is an error, and a lock that is
// not given back soon belongs to a server that hangs; only MariaDB ends its transaction.
func parameters() map[string]string {
	return map[string]string{
		"sql_mode":                 "'TRADITIONAL'",
		"innodb_lock_wait_timeout": "20",
		"autocommit":               "1 /*M!100300 , idle_transaction_timeout = 5 */",
	}
}

// credentials reads those that are in files.
func (d DB) credentials(c *mysql.Config) error {
	u, _, err := d.login().Resolve([]string{"mysql"})
	if err != nil {
		return err
	}
	c.Passwd, _ = u.User.Password()
	t, err := d.login().TLS(u.Hostname())
	if t != nil {
		c.TLS = t
	}
	return err
}

// reach connects once, and tries again until the timeout is over. A database that is missing is
// created.
func reach(ctx context.Context, timeout time.Duration, config *mysql.Config) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var last error
	for {
		err := once(limited, config, "DO 1")
		if err == nil {
			return nil
		}
		var refused *mysql.MySQLError
		if errors.As(err, &refused) {
			switch refused.Number {
			case missingDatabase:
				return create(limited, config)
			case badLogin, badDatabase:
				return fmt.Errorf("the database refuses the user: %w", err)
			}
		}
		// A timeout says less than the error before it.
		if last == nil || limited.Err() == nil {
			last = err
		}
		select {
		case <-time.After(retryConnect):
		case <-limited.Done():
			return fmt.Errorf("no answer within %v: %w; check that it runs, and that its address and the certificates are right",
				timeout, errors.Join(context.Cause(ctx), last))
		}
	}
}

// create creates the database.
func create(ctx context.Context, config *mysql.Config) error {
	other := config.Clone()
	other.DBName = ""
	name := strings.ReplaceAll(config.DBName, "`", "``")
	if err := once(ctx, other, "CREATE DATABASE IF NOT EXISTS `"+name+"`"); err != nil {
		return fmt.Errorf("the database %s does not exist, and cannot be created: %w", config.DBName, err)
	}
	return nil
}

// once executes a statement on a connection of its own.
func once(ctx context.Context, config *mysql.Config, statement string) error {
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	_, err = db.ExecContext(ctx, statement)
	return errors.Join(err, db.Close())
}

// prepare makes the tables. Where they are, it changes nothing and needs no right to. A statement
// that makes a table cannot be undone, so each is one that can be repeated, and the row of
// sailplane_log comes last.
func (d *database) prepare(ctx context.Context) (err error) {
	if ready, err := d.ready(ctx); ready || err != nil {
		return err
	}
	conn, err := d.writes.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	var locked sql.NullBool
	if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, ?)", openingLock, openingSeconds).Scan(&locked); err != nil {
		return err
	}
	if !locked.Bool {
		return fmt.Errorf("another server has been making the tables for %d s", openingSeconds)
	}
	defer func() {
		_, e := conn.ExecContext(context.WithoutCancel(ctx), "DO RELEASE_LOCK(?)", openingLock)
		err = errors.Join(err, e)
	}()
	if ready, err := d.ready(ctx); ready || err != nil {
		return err
	}
	statement, err := upgrade(ctx, conn)
	if err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, statement+tables+begin); err != nil {
		return fmt.Errorf("make the tables: %w", err)
	}
	return nil
}

// ready tells whether the tables are there.
func (d *database) ready(ctx context.Context) (bool, error) {
	var n int
	err := d.reads.QueryRowContext(ctx, hasLog).Scan(&n)
	if n == 0 || err != nil {
		return false, err
	}
	err = d.reads.QueryRowContext(ctx, "SELECT COUNT(*) FROM sailplane_log").Scan(&n)
	return n > 0, err
}

// upgrade returns what makes a table of kine's one of ours: nothing if there is none.
func upgrade(ctx context.Context, conn *sql.Conn) (statement string, err error) {
	var n int
	if err := conn.QueryRowContext(ctx, hasKine).Scan(&n); err != nil || n == 0 {
		return "", err
	}
	rows, err := conn.QueryContext(ctx, indexesOfKine)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	statement = alter
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return "", err
		}
		statement += ", DROP INDEX `" + strings.ReplaceAll(name, "`", "``") + "`"
	}
	return statement + ";\n", rows.Err()
}
