package postgres

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
	"github.com/sailplane-dev/sailplane/pkg/internal/sqllog"
)

// arguments are the columns of rows that are inserted.
func arguments(rows []sqllog.Row) []any {
	n := len(rows)
	ids, creates, previous, expires := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	created, deleted, leases := make([]int32, n), make([]int32, n), make([]int32, n)
	names, values := make([][]byte, n), make([][]byte, n)
	for i := range rows {
		r := &rows[i]
		ids[i], names[i], creates[i], previous[i], values[i] = r.ID, []byte(r.Name), r.CreateRevision, r.PrevRevision, r.Value
		created[i], deleted[i], leases[i] = number(r.Created), number(r.Deleted), r.Lease()
		expires[i] = r.Expires
	}
	return []any{ids, names, created, deleted, creates, previous, leases, values, expires}
}

func number(b bool) int32 {
	if b {
		return 1
	}
	return 0
}

// answer is a row of a query that begins with the position. Of the row of the table there may be
// none.
type answer struct {
	at                            sqllog.Position
	id, create, previous, expires *int64
	name                          []byte
	created, deleted              *bool
	value                         []byte
}

func (a *answer) fields() []any {
	return []any{
		&a.at.Current, &a.at.Compacted, &a.at.History,
		&a.id, &a.name, &a.created, &a.deleted, &a.create, &a.previous, &a.expires, &a.value,
	}
}

// row returns the row of the table, and whether there is one.
func (a *answer) row() (r sqllog.Row, ok bool) {
	if a.id == nil {
		return r, false
	}
	return sqllog.Row{
		ID: *a.id, Name: string(a.name), Created: *a.created, Deleted: *a.deleted, CreateRevision: *a.create,
		PrevRevision: *a.previous, Value: a.value, Expires: *a.expires,
	}, true
}

// Position implements sqllog.Database.
func (d *database) Position(ctx context.Context) (at sqllog.Position, err error) {
	err = d.pool.QueryRow(ctx, stands).Scan(&at.Current, &at.Compacted, &at.History)
	return at, err
}

// Get implements sqllog.Database.
func (d *database) Get(ctx context.Context, key sqllog.Known, at int64) (sqllog.Position, sqllog.Row, error) {
	var a answer
	err := d.pool.QueryRow(ctx, get, []byte(key.Key), at, key.ID).Scan(a.fields()...)
	r, _ := a.row()
	return a.at, r, err
}

// List implements sqllog.Database.
func (d *database) List(ctx context.Context, q revision.Query, each func(*sqllog.Row) error) (at sqllog.Position, err error) {
	text := list
	if q.KeysOnly {
		text = listKeys
	}
	first, end := sqllog.Bounds(q.Span)
	rows, err := d.pool.Query(ctx, text, first, end, q.Revision, max(0, q.Limit))
	if err != nil {
		return at, err
	}
	var a answer
	_, err = pgx.ForEachRow(rows, a.fields(), func() error {
		at = a.at
		r, ok := a.row()
		a.value = nil
		if !ok {
			return nil
		}
		return each(&r)
	})
	return at, err
}

// Count implements sqllog.Database.
func (d *database) Count(ctx context.Context, s revision.Span, revision int64) (at sqllog.Position, n int64, err error) {
	first, end := sqllog.Bounds(s)
	err = d.pool.QueryRow(ctx, count, first, end, revision).Scan(&at.Current, &at.Compacted, &at.History, &n)
	return at, n, err
}

// Changes implements sqllog.Database.
func (d *database) Changes(
	ctx context.Context, s revision.Span, after int64, each func(row, previous *sqllog.Row),
) (at sqllog.Position, err error) {
	first, end := sqllog.Bounds(s)
	rows, err := d.pool.Query(ctx, changes, after, first, end, sqllog.ChangesRows, sqllog.ChangesBytes)
	if err != nil {
		return at, err
	}
	var a answer
	var p sqllog.Row
	fields := append(a.fields(), &p.ID, &p.Deleted, &p.Created, &p.CreateRevision, &p.Value, &p.Expires)
	_, err = pgx.ForEachRow(rows, fields, func() error {
		at = a.at
		r, ok := a.row()
		a.value = nil
		if !ok {
			return nil
		}
		previous := p
		previous.Name = r.Name
		p.Value = nil
		each(&r, &previous)
		return nil
	})
	return at, err
}

// Expiring implements sqllog.Database.
func (d *database) Expiring(ctx context.Context) (kvs []*revision.KeyValue, err error) {
	rows, err := d.pool.Query(ctx, expiring)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (*revision.KeyValue, error) {
		kv := &revision.KeyValue{}
		var name []byte
		err := row.Scan(&name, &kv.Mod, &kv.Expires)
		kv.Key = string(name)
		return kv, err
	})
}

// Size implements sqllog.Database.
func (d *database) Size(ctx context.Context) (n int64, err error) {
	err = d.pool.QueryRow(ctx, size).Scan(&n)
	return n, err
}

// Compact implements sqllog.Database.
func (d *database) Compact(ctx context.Context, at int64, asked bool) (later bool, err error) {
	err = pgx.BeginTxFunc(ctx, d.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if asked {
			tag, err := tx.Exec(ctx, ask, at)
			if later = tag.RowsAffected() > 0; err != nil || !later {
				return err
			}
		}
		if _, err := tx.Exec(ctx, compact, at); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, compactOfKine, at)
		return err
	})
	return later, err
}

// Skip implements sqllog.Database.
func (d *database) Skip(ctx context.Context, above int64) error {
	_, err := d.pool.Exec(ctx, skip, above+revision.Skipped, above)
	return err
}

// Shrink implements sqllog.Database.
func (d *database) Shrink(ctx context.Context) error {
	_, err := d.pool.Exec(ctx, shrink)
	return explain(err)
}

// Sweep implements sqllog.Database.
func (d *database) Sweep(ctx context.Context, to, limit int64) (swept int64, err error) {
	err = pgx.BeginTxFunc(ctx, d.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, lockSweep).Scan(&swept); err != nil || swept >= to {
			return err
		}
		var next, n, freed int64
		if err := tx.QueryRow(ctx, stepEnd, swept, to, limit).Scan(&next, &n); err != nil {
			return err
		}
		if n < limit {
			next = to
		}
		if err := tx.QueryRow(ctx, sweep, swept, next).Scan(&freed); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, setSwept, next); err != nil {
			return err
		}
		swept = next
		_, err := tx.Exec(ctx, lighten, freed) // last: it locks the log until the commit
		return err
	})
	var failure *pgconn.PgError
	if errors.As(err, &failure) && failure.Code == pgerrcode.LockNotAvailable {
		err = d.pool.QueryRow(ctx, getSwept).Scan(&swept) // another server is at it
	}
	return swept, err
}

// Wait implements sqllog.Database.
func (d *database) Wait(ctx context.Context) (int64, error) {
	if d.poll > 0 {
		select {
		case <-time.After(d.poll):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		at, err := d.Position(ctx)
		return at.Current, err
	}
	fresh := d.listener == nil || d.listener.IsClosed()
	conn, err := d.connection(ctx, &d.listener)
	if err != nil {
		return 0, err
	}
	if fresh {
		_, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{d.channel}.Sanitize())
		return 0, err // there may have been writes before
	}
	quiet, cancel := context.WithTimeout(ctx, heartbeat)
	defer cancel()
	notice, err := conn.WaitForNotification(quiet)
	if err != nil && quiet.Err() != nil && ctx.Err() == nil {
		return d.heart(ctx, conn)
	}
	if err != nil {
		return 0, errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
	}
	at, err := strconv.ParseInt(notice.Payload, 10, 64)
	if err != nil {
		at = 0 // somebody else's: look
	}
	return at, nil
}

// heart asks where the log stands on the connection that listens: one that the network has lost
// would be silent for ever.
func (d *database) heart(ctx context.Context, conn *pgx.Conn) (current int64, err error) {
	soon, cancel := context.WithTimeout(ctx, heartbeat)
	defer cancel()
	var at sqllog.Position
	if err := conn.QueryRow(soon, stands).Scan(&at.Current, &at.Compacted, &at.History); err != nil {
		return 0, errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
	}
	return at.Current, nil
}

// Close implements sqllog.Database.
func (d *database) Close() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for _, conn := range []*pgx.Conn{d.writer, d.listener} {
		if conn != nil && !conn.IsClosed() {
			err = errors.Join(err, conn.Close(ctx))
		}
	}
	d.pool.Close()
	return err
}
