package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sailplane-dev/sailplane/pkg/internal/sqllog"
)

// database implements sqllog.Database.
type database struct {
	reads, writes *sql.DB // a write does not wait for a connection that reads
	poll          time.Duration
}

var _ sqllog.Database = (*database)(nil)

// Write implements sqllog.Database: the log is locked for two round trips.
func (d *database) Write(
	ctx context.Context, keys []sqllog.Known, decide func(sqllog.Position, map[string]sqllog.Row) (sqllog.Batch, error),
) (err error) {
	conn, err := d.writes.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil { // the connection goes with the transaction, of which nothing is known
			err = explain(err)
			_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		}
		_ = conn.Close()
	}()
	at, rows, err := lockAndRead(ctx, conn, keys)
	if err != nil {
		return err
	}
	batch, err := decide(at, rows)
	if err != nil {
		return err
	}
	if len(batch.Rows) == 0 {
		_, err := conn.ExecContext(ctx, "ROLLBACK")
		return err
	}
	last := batch.Rows[len(batch.Rows)-1].ID
	text, arguments := insertOf(batch.Rows)
	_, err = conn.ExecContext(ctx, text+commit, append(arguments, last, batch.History)...)
	return err
}

// lockAndRead begins a transaction.
func lockAndRead(ctx context.Context, conn *sql.Conn, keys []sqllog.Known) (at sqllog.Position, found map[string]sqllog.Row, err error) {
	// A row that is known has an id that no other key's row has.
	text, arguments := &strings.Builder{}, make([]any, 0, 2*len(keys)+1)
	text.WriteString(lock + "SELECT " + columns + ", IF(k.id IN (0")
	for _, k := range keys {
		text.WriteString(", ?")
		arguments = append(arguments, k.ID)
	}
	text.WriteString("), NULL, k.value) FROM (")
	for i, k := range keys {
		if i > 0 {
			text.WriteString(" UNION ALL ")
		}
		text.WriteString(newest)
		arguments = append(arguments, []byte(k.Key))
	}
	text.WriteString(") m JOIN sailplane_changes k ON k.id = m.id")
	rows, err := conn.QueryContext(ctx, text.String(), arguments...)
	if err != nil {
		return at, nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	if !rows.Next() {
		return at, nil, errors.Join(rows.Err(), errors.New("the table sailplane_log has no row"))
	}
	if err := rows.Scan(&at.Current, &at.Compacted, &at.History); err != nil {
		return at, nil, err
	}
	if !rows.NextResultSet() {
		return at, nil, errors.Join(rows.Err(), errors.New("the newest rows were not read"))
	}
	found = map[string]sqllog.Row{}
	for rows.Next() {
		var r sqllog.Row
		if err := rows.Scan(&r.ID, &r.Name, &r.Created, &r.Deleted, &r.CreateRevision, &r.PrevRevision, &r.Expires, &r.Value); err != nil {
			return at, nil, err
		}
		found[r.Name] = r
	}
	return at, found, rows.Err()
}

// insertOf is the statement that inserts rows.
func insertOf(rows []sqllog.Row) (text string, arguments []any) {
	const one = "(?, ?, ?, ?, ?, ?, ?, ?, ?)"
	for i := range rows {
		r := &rows[i]
		var expires any
		if r.Expires != 0 {
			expires = r.Expires
		}
		arguments = append(arguments, r.ID, []byte(r.Name), r.Created, r.Deleted,
			r.CreateRevision, r.PrevRevision, r.Lease(), r.Value, expires)
	}
	return insert + strings.Repeat(one+", ", len(rows)-1) + one, arguments
}

// Wait implements sqllog.Database: it looks now and then.
func (d *database) Wait(ctx context.Context) (int64, error) {
	select {
	case <-time.After(d.poll):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	at, err := d.Position(ctx)
	return at.Current, err
}

// Close implements sqllog.Database. That a connection is broken is no matter any more.
func (d *database) Close() error {
	for _, db := range []*sql.DB{d.writes, d.reads} {
		if err := db.Close(); err != nil && !errors.Is(err, driver.ErrBadConn) {
			return err
		}
	}
	return nil
}

// explain says of an error that stays until somebody does something what that is.
func explain(err error) error {
	var failure *mysql.MySQLError
	if !errors.As(err, &failure) {
		return err
	}
	switch failure.Number {
	case diskFull, writeFailed, tableFull:
		return fmt.Errorf("%w: the disk is full: make room for the database", err)
	case readOnlyServer, readOnlyTransaction, readOnlyMode:
		return fmt.Errorf("%w: the database takes no writes: set read_only to off, or use the primary", err)
	}
	return err
}
