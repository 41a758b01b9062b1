package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
	"github.com/sailplane-dev/sailplane/pkg/internal/sqllog"
)

// answer is a row of a query that begins with the position. Of the row of the table there may be
// none.
type answer struct {
	at                   sqllog.Position
	id, create, previous sql.NullInt64
	expires              int64
	name, value          []byte
	created, deleted     sql.NullBool
}

func (a *answer) fields() []any {
	return []any{
		&a.at.Current, &a.at.Compacted, &a.at.History,
		&a.id, &a.name, &a.created, &a.deleted, &a.create, &a.previous, &a.expires, &a.value,
	}
}

// row returns the row of the table, and whether there is one.
func (a *answer) row() (r sqllog.Row, ok bool) {
	return sqllog.Row{
		ID: a.id.Int64, Name: string(a.name), Created: a.created.Bool, Deleted: a.deleted.Bool, CreateRevision: a.create.Int64,
		PrevRevision: a.previous.Int64, Value: a.value, Expires: a.expires,
	}, a.id.Valid
}

// Position implements sqllog.Database.
func (d *database) Position(ctx context.Context) (at sqllog.Position, err error) {
	err = d.reads.QueryRowContext(ctx, stands).Scan(&at.Current, &at.Compacted, &at.History)
	return at, err
}

// newestOr is a revision, or one that is above all for the newest.
func newestOr(at int64) int64 { return cmp.Or(at, math.MaxInt64) }

// Get implements sqllog.Database.
func (d *database) Get(ctx context.Context, key sqllog.Known, at int64) (sqllog.Position, sqllog.Row, error) {
	var a answer
	err := d.reads.QueryRowContext(ctx, get, key.ID, []byte(key.Key), newestOr(at)).Scan(a.fields()...)
	r, _ := a.row()
	return a.at, r, err
}

// List implements sqllog.Database.
func (d *database) List(ctx context.Context, q revision.Query, each func(*sqllog.Row) error) (at sqllog.Position, err error) {
	first, end := sqllog.Bounds(q.Span)
	limit := q.Limit
	if limit <= 0 {
		limit = math.MaxInt64
	}
	var found []sqllog.Row
	rows, err := d.reads.QueryContext(ctx, list, q.KeysOnly, first, end, newestOr(q.Revision), newestOr(q.Revision), limit)
	if err != nil {
		return at, err
	}
	err = forEach(rows, func() error {
		var a answer
		if err := rows.Scan(a.fields()...); err != nil {
			return err
		}
		at = a.at
		if r, ok := a.row(); ok {
			found = append(found, r)
		}
		return nil
	})
	if err != nil {
		return at, err
	}
	// They come in this order, but SQL does not promise it.
	slices.SortFunc(found, func(a, b sqllog.Row) int { return strings.Compare(a.Name, b.Name) })
	for i := range found {
		if err := each(&found[i]); err != nil {
			return at, err
		}
	}
	return at, nil
}

// forEach calls a function for each row, and closes them.
func forEach(rows *sql.Rows, each func() error) (err error) {
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := each(); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Count implements sqllog.Database.
func (d *database) Count(ctx context.Context, s revision.Span, revision int64) (at sqllog.Position, n int64, err error) {
	first, end := sqllog.Bounds(s)
	err = d.reads.QueryRowContext(ctx, count, first, end, newestOr(revision), newestOr(revision)).
		Scan(&at.Current, &at.Compacted, &at.History, &n)
	return at, n, err
}

// Changes implements sqllog.Database.
func (d *database) Changes(
	ctx context.Context, s revision.Span, after int64, each func(row, previous *sqllog.Row),
) (at sqllog.Position, err error) {
	first, end := sqllog.Bounds(s)
	rows, err := d.reads.QueryContext(ctx, changes, after, first, end, sqllog.ChangesRows, sqllog.ChangesBytes)
	if err != nil {
		return at, err
	}
	err = forEach(rows, func() error {
		var a answer
		var p sqllog.Row
		if err := rows.Scan(append(a.fields(), &p.ID, &p.Deleted, &p.Created, &p.CreateRevision, &p.Value, &p.Expires)...); err != nil {
			return err
		}
		at = a.at
		r, ok := a.row()
		if !ok {
			return nil
		}
		p.Name = r.Name
		each(&r, &p)
		return nil
	})
	return at, err
}

// Expiring implements sqllog.Database.
func (d *database) Expiring(ctx context.Context) (kvs []*revision.KeyValue, err error) {
	rows, err := d.reads.QueryContext(ctx, expiring)
	if err != nil {
		return nil, err
	}
	err = forEach(rows, func() error {
		kv := &revision.KeyValue{}
		kvs = append(kvs, kv)
		return rows.Scan(&kv.Key, &kv.Mod, &kv.Expires)
	})
	return kvs, err
}

// Size implements sqllog.Database.
func (d *database) Size(ctx context.Context) (n int64, err error) {
	err = d.reads.QueryRowContext(ctx, size).Scan(&n)
	return n, err
}

// transaction commits what a function does. Its first error undoes it.
func (d *database) transaction(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := d.reads.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// Compact implements sqllog.Database.
func (d *database) Compact(ctx context.Context, at int64, asked bool) (later bool, err error) {
	later = true
	err = d.transaction(ctx, func(tx *sql.Tx) error {
		if asked {
			done, err := tx.ExecContext(ctx, ask, at, at)
			if err != nil {
				return err
			}
			if n, err := done.RowsAffected(); err != nil || n == 0 {
				later = false
				return err
			}
		}
		_, err := tx.ExecContext(ctx, compact+"; "+compactOfKine, at, at)
		return err
	})
	return later, err
}

// Shrink implements sqllog.Database.
func (d *database) Shrink(ctx context.Context) error {
	rows, err := d.reads.QueryContext(ctx, shrink)
	if err != nil {
		return err
	}
	for rows.Next() { // what it did
	}
	return errors.Join(rows.Err(), rows.Close())
}

// Skip implements sqllog.Database.
func (d *database) Skip(ctx context.Context, above int64) error {
	_, err := d.reads.ExecContext(ctx, skip, above+revision.Skipped, above+revision.Skipped, above)
	return err
}

// Sweep implements sqllog.Database.
func (d *database) Sweep(ctx context.Context, to, limit int64) (swept int64, err error) {
	err = d.transaction(ctx, func(tx *sql.Tx) error {
		if err := tx.QueryRowContext(ctx, lockSweep).Scan(&swept); err != nil || swept >= to {
			return err
		}
		var next, n int64
		if err := tx.QueryRowContext(ctx, stepEnd, swept, to, limit).Scan(&next, &n); err != nil {
			return err
		}
		if n < limit {
			next = to
		}
		freed, err := drop(ctx, tx, swept, next)
		if err != nil {
			return err
		}
		swept = next
		_, err = tx.ExecContext(ctx, setSwept+"; "+lighten, next, freed) // last: it locks the log until the commit
		return err
	})
	var failure *mysql.MySQLError
	if errors.As(err, &failure) && (failure.Number == lockTimeout || failure.Number == lockNowait) {
		err = d.reads.QueryRowContext(ctx, getSwept).Scan(&swept) // another server is at it
	}
	return swept, err
}

// drop deletes what the revisions after one, up to another, made history, and returns its weight.
func drop(ctx context.Context, tx *sql.Tx, after, to int64) (freed int64, err error) {
	rows, err := tx.QueryContext(ctx, victims, after, to, after, to)
	if err != nil {
		return 0, err
	}
	var ids []any
	err = forEach(rows, func() error {
		var id, weight int64
		err := rows.Scan(&id, &weight)
		ids = append(ids, id)
		freed += weight
		return err
	})
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	_, err = tx.ExecContext(ctx, "DELETE FROM sailplane_changes WHERE id IN (?"+strings.Repeat(", ?", len(ids)-1)+")", ids...)
	return freed, err
}
