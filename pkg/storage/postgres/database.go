package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sailplane-dev/sailplane/pkg/internal/sqllog"
)

// database implements sqllog.Database.
type database struct {
	pool *pgxpool.Pool
	poll time.Duration // 0: the database tells
	// channel is that of notifications. Schemas of one database have logs of their own.
	channel string

	writer, listener *pgx.Conn // of Write and of Wait, which have one caller each
}

var _ sqllog.Database = (*database)(nil)

// connection returns the one that is kept, or a new one.
func (d *database) connection(ctx context.Context, kept **pgx.Conn) (*pgx.Conn, error) {
	if *kept != nil && !(*kept).IsClosed() {
		return *kept, nil
	}
	config := d.pool.Config()
	if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return nil, err
	}
	if err := config.AfterConnect(ctx, conn); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	*kept = conn
	return conn, nil
}

// Write implements sqllog.Database: the log is locked for two round trips.
func (d *database) Write(
	ctx context.Context, keys []sqllog.Known, decide func(sqllog.Position, map[string]sqllog.Row) (sqllog.Batch, error),
) (err error) {
	conn, err := d.connection(ctx, &d.writer)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil { // with the transaction, of which nothing is known
			err = errors.Join(explain(err), conn.Close(context.WithoutCancel(ctx)))
		}
	}()
	at, newest, err := lockAndRead(ctx, conn, keys)
	if err != nil {
		return err
	}
	batch, err := decide(at, newest)
	if err != nil {
		return err
	}
	if len(batch.Rows) == 0 {
		_, err := conn.Exec(ctx, "ROLLBACK")
		return err
	}
	last := batch.Rows[len(batch.Rows)-1].ID
	b := &pgx.Batch{}
	b.Queue(insert, arguments(batch.Rows)...)
	b.Queue(advance, last, batch.History)
	if d.poll == 0 {
		b.Queue(notify, d.channel, strconv.FormatInt(last, 10))
	}
	b.Queue("COMMIT")
	return conn.SendBatch(ctx, b).Close() // with the error of any of them
}

// lockAndRead begins a transaction. The second statement sees what was committed before the
// lock was there.
func lockAndRead(ctx context.Context, conn *pgx.Conn, keys []sqllog.Known) (at sqllog.Position, newest map[string]sqllog.Row, err error) {
	names, known := make([][]byte, len(keys)), make([]int64, len(keys))
	for i, k := range keys {
		names[i], known[i] = []byte(k.Key), k.ID
	}
	b := &pgx.Batch{}
	b.Queue(beginWrite)
	b.Queue(limitIdle)
	b.Queue(lock)
	b.Queue(selectNewest, names, known)
	results := conn.SendBatch(ctx, b)
	defer func() { err = errors.Join(err, results.Close()) }()
	for range 2 {
		if _, err := results.Exec(); err != nil {
			return at, nil, err
		}
	}
	if err := results.QueryRow().Scan(&at.Current, &at.Compacted, &at.History); err != nil {
		return at, nil, err
	}
	rows, err := results.Query()
	if err != nil {
		return at, nil, err
	}
	newest = map[string]sqllog.Row{}
	var r sqllog.Row
	var name []byte
	fields := []any{&r.ID, &name, &r.Created, &r.Deleted, &r.CreateRevision, &r.PrevRevision, &r.Expires, &r.Value}
	_, err = pgx.ForEachRow(rows, fields, func() error {
		row := r
		row.Name = string(name)
		newest[row.Name] = row
		r.Value = nil
		return nil
	})
	return at, newest, err
}

// fileTooLarge is what the system says where a process may write no larger file.
const fileTooLarge = "File too large"

// explain says of an error that stays until somebody does something what that is.
func explain(err error) error {
	var failure *pgconn.PgError
	switch {
	case !errors.As(err, &failure):
		return err
	case failure.Code == pgerrcode.DiskFull || strings.Contains(failure.Message, fileTooLarge):
		return fmt.Errorf("%w: the disk is full: make room for the database", err)
	case failure.Code == pgerrcode.ReadOnlySQLTransaction:
		return fmt.Errorf("%w: the database takes no writes: set default_transaction_read_only to off, or promote the standby", err)
	}
	return err
}
