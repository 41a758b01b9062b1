// Package sqltable keeps the objects of a resource as rows of a SQL table, with columns that other
// programs can read, and write.
//
//	db, err := sql.Open("pgx", "postgres://fleet@db.internal/fleet")
//	...
//	apis.Resource[fleetv1.Machine, fleetv1.MachineList]("machines",
//		apis.Kept(&sqltable.Table[fleetv1.Machine]{DB: db, Name: "machines"}))
//
// The table has the columns namespace, name, uid, created (metadata.creationTimestamp),
// resource_version, one for each of [Table.Columns], and object, which has the rest as JSON. It is
// made when it is first used; a table that is there already is given the columns that it lacks,
// and its rows become objects.
//
// Whoever writes the table writes objects: INSERT INTO machines (namespace, name, rack) VALUES
// ('default', 'm1', 'b') creates one, UPDATE machines SET rack = 'c' changes some, and watchers
// see it. Triggers give each change a version, and note it in the table NAME_changes; the newest
// version is in NAME_version. What other programs write is not validated: a row that is no
// object is left out, and a get of it says why. They leave resource_version alone.
//
// It works with SQLite and PostgreSQL, over any driver of database/sql; this package imports
// none. Give connections to SQLite a busy timeout, and better write-ahead logging. On PostgreSQL,
// writers of one table wait for each other from their first write to their commit: that is what
// makes versions appear in order, so that no watcher misses any. Keep such transactions short, and
// leave them at the isolation READ COMMITTED.
package sqltable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/sailplane-dev/sailplane/pkg/keep"
)

// Table is a keep.Keeper whose objects are rows of a table. Its fields must not change once it is
// used. Required: DB and Name.
type Table[T any] struct {
	DB *sql.DB
	// Name is that of the table: lower-case letters, digits and underscores, at most 40.
	Name string
	// Columns are the fields that have a column of their own. Nil: those of spec that are
	// strings, numbers or booleans, with their JSON names in snake case.
	Columns []Column
	// Dialect is the database. Empty: it is asked.
	Dialect Dialect
	// History is how many changes are known, for watches that begin there. 0: 10,000.
	History int

	mu     sync.Mutex
	writes sync.Mutex // held by the writer, on SQLite
	opened *statements
}

// Column is a column for a field.
type Column struct {
	// Name is that of the column: lower-case letters, digits and underscores, at most 40.
	Name string
	// Path is the field by its JSON names, "spec.rack". A string has type TEXT, an integer
	// BIGINT, other numbers DOUBLE PRECISION, a boolean BOOLEAN, and all else JSON. NULL is a field
	// that is not there.
	Path string
}

// Dialect is a kind of database.
type Dialect string

// The databases that are known.
const (
	SQLite     Dialect = "sqlite"
	PostgreSQL Dialect = "postgresql"
)

const (
	defaultHistory = 10000
	maxBatch       = 1000 // changes that are read at once
)

// Get implements keep.Keeper.
func (t *Table[T]) Get(ctx context.Context, key keep.Key) (item keep.Item[T], err error) {
	s, err := t.open(ctx)
	if err != nil {
		return item, err
	}
	if err := ctx.Err(); err != nil {
		return item, err
	}
	err = retry(ctx, func() error {
		r := s.row()
		err := t.one(ctx, s, key).Scan(r.into...)
		if errors.Is(err, sql.ErrNoRows) {
			return keep.ErrNotFound
		} else if err != nil {
			return fmt.Errorf("table %s: read %s: %w", t.Name, key, err)
		}
		item = itemOf[T](s, r)
		return nil
	})
	return item, err
}

// GetsAtOnce implements keep.Prompt: SQLite reads a row in the process, once the table is there.
func (t *Table[T]) GetsAtOnce() bool {
	if !t.mu.TryLock() {
		return false
	}
	defer t.mu.Unlock()
	return t.opened != nil && t.opened.dialect == SQLite
}

// one reads the row of a key. In SQLite that is short: a context that may end costs the driver and
// package sql a goroutine each.
func (t *Table[T]) one(ctx context.Context, s *statements, key keep.Key) *sql.Row {
	if get := s.prepared[s.get]; get != nil {
		return get.QueryRowContext(context.WithoutCancel(ctx), key.Namespace, key.Name)
	}
	return t.DB.QueryRowContext(ctx, s.get, key.Namespace, key.Name)
}

// List implements keep.Keeper.
func (t *Table[T]) List(ctx context.Context, r keep.Range) (page keep.Page[T], err error) {
	s, err := t.open(ctx)
	if err != nil {
		return page, err
	}
	limit := int64(math.MaxInt64)
	if r.Limit > 0 {
		limit = int64(r.Limit) + 1 // one more tells whether there is more
	}
	query, args := s.list, []any{r.After.Namespace + "/" + r.After.Name, limit}
	if r.After == (keep.Key{}) {
		args[0] = ""
	}
	if r.Namespace != "" {
		query, args = s.listNamespace, []any{r.Namespace, args[0], limit}
	}
	err = retry(ctx, func() error {
		page = keep.Page[T]{}
		found := s.row()
		ask := func() (*sql.Rows, error) { return t.rows(ctx, s, query, args...) }
		err := each(ask, append([]any{&page.Version}, found.into...), func() error {
			if !found.present() {
				return nil
			}
			if r.Limit > 0 && len(page.Items) == r.Limit {
				page.More = true
				return nil
			}
			page.Items = append(page.Items, itemOf[T](s, found))
			return nil
		})
		if err != nil {
			return fmt.Errorf("table %s: list: %w", t.Name, err)
		}
		return nil
	})
	return page, err
}

// rows asks a query of the database, which may have prepared it.
func (t *Table[T]) rows(ctx context.Context, s *statements, query string, args ...any) (*sql.Rows, error) {
	if prepared := s.prepared[query]; prepared != nil {
		return prepared.QueryContext(ctx, args...)
	}
	return t.DB.QueryContext(ctx, query, args...)
}

// each calls f for every row that is found, scanned into the places.
func each(ask func() (*sql.Rows, error), places []any, f func() error) error {
	rows, err := ask()
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(places...); err != nil {
			return err
		}
		if err := f(); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Put implements keep.Keeper.
func (t *Table[T]) Put(ctx context.Context, object *T, ifVersion int64) (int64, error) {
	s, err := t.open(ctx)
	if err != nil {
		return 0, err
	}
	key, values, err := s.valuesOf(object)
	if err != nil {
		return 0, fmt.Errorf("table %s: %w", t.Name, err)
	}
	query, args := s.insert, append([]any{key.Namespace, key.Name}, values...)
	if ifVersion != 0 {
		query, args = s.update, append(args, ifVersion)
	}
	return t.write(ctx, s, write{key, ifVersion, query, args})
}

// Remove implements keep.Keeper.
func (t *Table[T]) Remove(ctx context.Context, key keep.Key, ifVersion int64) (int64, error) {
	s, err := t.open(ctx)
	if err != nil {
		return 0, err
	}
	return t.write(ctx, s, write{key, ifVersion, s.remove, []any{key.Namespace, key.Name, ifVersion}})
}

// write is a statement that writes a row if it has a version.
type write struct {
	key       keep.Key
	ifVersion int64
	query     string
	args      []any
}

// write writes a row and returns its new version: the newest one of the table, as nobody else can
// write it before the commit.
func (t *Table[T]) write(ctx context.Context, s *statements, w write) (version int64, err error) {
	if s.dialect == SQLite {
		t.writes.Lock()
		defer t.writes.Unlock()
	}
	err = retry(ctx, func() error {
		tx, err := t.DB.BeginTx(ctx, s.isolation())
		if err != nil {
			return err
		}
		defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
		result, err := tx.ExecContext(ctx, w.query, w.args...)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		if err != nil {
			return err
		}
		if n == 0 {
			return refused(ctx, tx, s, w)
		}
		if err := tx.QueryRowContext(ctx, s.version).Scan(&version); err != nil {
			return err
		}
		return tx.Commit()
	})
	if err != nil && !errors.Is(err, keep.ErrConflict) && !errors.Is(err, keep.ErrNotFound) {
		err = fmt.Errorf("table %s: write %s: %w", t.Name, w.key, err)
	}
	return version, err
}

// refused is why nothing was written.
func refused(ctx context.Context, tx *sql.Tx, s *statements, w write) error {
	if w.ifVersion == 0 {
		return keep.ErrConflict
	}
	var version int64
	err := tx.QueryRowContext(ctx, s.versionOf, w.key.Namespace, w.key.Name).Scan(&version)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return keep.ErrNotFound
	case err != nil:
		return err
	}
	return keep.ErrConflict
}

// Changes implements keep.Keeper.
func (t *Table[T]) Changes(ctx context.Context, since int64) (b keep.Batch[T], err error) {
	s, err := t.open(ctx)
	if err != nil {
		return b, err
	}
	err = retry(ctx, func() (err error) {
		b, err = t.changes(ctx, s, since)
		return err
	})
	return b, err
}

func (t *Table[T]) changes(ctx context.Context, s *statements, since int64) (b keep.Batch[T], err error) {
	var newest, first int64
	var version, removed sql.NullInt64
	var namespace, name sql.NullString
	found, read := s.row(), 0
	places := append([]any{&newest, &first, &version, &namespace, &name, &removed}, found.into...)
	ask := func() (*sql.Rows, error) { return t.rows(ctx, s, s.changes, since, maxBatch+1) }
	err = each(ask, places, func() error {
		if read++; !version.Valid || read > maxBatch {
			b.More = version.Valid
			return nil
		}
		change := keep.Change[T]{Key: keep.Key{Namespace: namespace.String, Name: name.String}, Version: version.Int64}
		b.Version = change.Version
		if removed.Int64 == 0 {
			if !found.present() {
				return nil // it has changed since
			}
			item := itemOf[T](s, found)
			change.Object, change.Broken = item.Object, item.Broken
		}
		b.Changes = append(b.Changes, change)
		return nil
	})
	if err != nil {
		return keep.Batch[T]{}, fmt.Errorf("table %s: read changes: %w", t.Name, err)
	}
	if since < first || since > newest {
		return keep.Batch[T]{}, fmt.Errorf("table %s has the changes from %d to %d: %w", t.Name, first, newest, keep.ErrExpired)
	}
	if !b.More {
		b.Version = newest
	}
	return b, nil
}
