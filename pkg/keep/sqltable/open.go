package sqltable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// open returns the statements of a table that is ready. After an error the next call tries again.
func (t *Table[T]) open(ctx context.Context) (*statements, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.opened != nil {
		return t.opened, nil
	}
	if t.DB == nil || !isName(t.Name) || t.History < 0 {
		return nil, fmt.Errorf("table %q with a history of %d: want DB set, "+
			"a name of lower-case letters, digits and underscores, at most %d, and a history of 0 or more", t.Name, t.History, maxName)
	}
	if _, ok := any(new(T)).(metav1.Object); !ok {
		return nil, fmt.Errorf("table %s: a %T is no object of an API: it needs metav1.ObjectMeta", t.Name, *new(T))
	}
	columns, err := columnsOf(reflect.TypeFor[T](), t.Columns)
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", t.Name, err)
	}
	dialect, err := t.dialect(ctx)
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", t.Name, err)
	}
	s := newStatements(dialect, t.Name, columns)
	history := t.History
	if history == 0 {
		history = defaultHistory
	}
	err = retry(ctx, func() error {
		tx, err := t.DB.BeginTx(ctx, s.isolation())
		if err != nil {
			return err
		}
		defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
		if err := s.create(ctx, tx, history); err != nil {
			return err
		}
		return tx.Commit()
	})
	if err != nil {
		return nil, fmt.Errorf("table %s: make it ready: %w", t.Name, err)
	}
	if dialect == SQLite {
		// It has no cache of statements, and nobody between that would mix them up. The database
		// closes them.
		s.prepared = map[string]*sql.Stmt{}
		for _, query := range []string{s.get, s.list, s.listNamespace, s.changes} {
			if s.prepared[query], err = t.DB.PrepareContext(ctx, query); err != nil {
				return nil, fmt.Errorf("table %s: %w", t.Name, err)
			}
		}
	}
	t.opened = s
	return s, nil
}

// dialect asks the database what it is.
func (t *Table[T]) dialect(ctx context.Context) (Dialect, error) {
	switch t.Dialect {
	case SQLite, PostgreSQL:
		return t.Dialect, nil
	case "":
	default:
		return "", fmt.Errorf("dialect %q: want %q or %q", t.Dialect, SQLite, PostgreSQL)
	}
	if err := t.DB.PingContext(ctx); err != nil {
		return "", err
	}
	var version string
	lite := t.DB.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version)
	if lite == nil {
		return SQLite, nil
	}
	pg := t.DB.QueryRowContext(ctx, "SELECT current_setting('server_version_num')").Scan(&version)
	if pg == nil {
		return PostgreSQL, nil
	}
	return "", fmt.Errorf("it is neither SQLite nor PostgreSQL: %w", errors.Join(lite, pg))
}

// create makes what is missing.
func (s *statements) create(ctx context.Context, tx *sql.Tx, history int) error {
	if s.dialect == PostgreSQL {
		// Of servers that start together one makes the table.
		if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock(hashtext($1))", "sailplane/"+s.table); err != nil {
			return err
		}
	}
	for _, query := range s.tables() {
		if _, err := tx.ExecContext(ctx, query); err != nil {
			return fmt.Errorf("%w, in %s", err, query)
		}
	}
	adopted, err := s.addColumns(ctx, tx)
	if err != nil {
		return err
	}
	if err := s.begin(ctx, tx, history); err != nil {
		return err
	}
	after := s.triggers()
	if adopted {
		// The triggers give the rows their versions.
		after = append(after, fmt.Sprintf(`UPDATE %s SET "uid" = %s, "created" = %s WHERE "resource_version" = 0`,
			quoted(s.table), s.dialect.uid(), s.dialect.now()))
	}
	for _, query := range after {
		if _, err := tx.ExecContext(ctx, query); err != nil {
			return fmt.Errorf("%w, in %s", err, query)
		}
	}
	return nil
}

// tables make the table, its versions and its changes.
func (s *statements) tables() []string {
	c, settings := s.dialect.bytewise(), ""
	if s.dialect == PostgreSQL {
		// The row that each write changes stays in one page.
		settings = ` WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, ` +
			`autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0)`
	}
	return []string{
		fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %s ("namespace" TEXT%s NOT NULL DEFAULT '', "name" TEXT%s NOT NULL)`,
			quoted(s.table), c, c),
		fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %s ("one" INTEGER PRIMARY KEY CHECK ("one" = 1), "version" BIGINT NOT NULL, `+
			`"start" BIGINT NOT NULL, "history" BIGINT NOT NULL)%s`, quoted(s.table+"_version"), settings),
		fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %s ("version" BIGINT PRIMARY KEY, "namespace" TEXT NOT NULL, "name" TEXT NOT NULL, `+
			`"removed" INTEGER NOT NULL)`, quoted(s.table+"_changes")),
	}
}

// addColumns adds the columns that the table lacks, and tells whether its rows were none of ours.
func (s *statements) addColumns(ctx context.Context, tx *sql.Tx) (adopted bool, err error) {
	query := `SELECT name FROM pragma_table_info(?1)`
	if s.dialect == PostgreSQL {
		query = `SELECT attname FROM pg_attribute WHERE attrelid = quote_ident($1)::regclass AND attnum > 0 AND NOT attisdropped`
	}
	rows, err := tx.QueryContext(ctx, query, s.table)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	var present []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return false, err
		}
		present = append(present, name)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return false, err
	}
	if !slices.Contains(present, "name") {
		return false, fmt.Errorf("it has no column \"name\", which objects need: it has %s", strings.Join(present, ", "))
	}
	add := []struct{ name, kind string }{
		{"namespace", "TEXT" + s.dialect.bytewise() + " NOT NULL DEFAULT ''"},
		{"resource_version", "BIGINT NOT NULL DEFAULT 0"},
		{"object", s.dialect.typeOf(document)},
	}
	for _, c := range s.columns {
		add = append(add, struct{ name, kind string }{c.name, s.dialect.typeOf(c.kind)})
	}
	for _, a := range add {
		if slices.Contains(present, a.name) {
			continue
		}
		query := fmt.Sprintf(`ALTER TABLE %s ADD COLUMN %s %s`, quoted(s.table), quoted(a.name), a.kind)
		if _, err := tx.ExecContext(ctx, query); err != nil {
			return false, fmt.Errorf("add column %s: %w", a.name, err)
		}
		adopted = adopted || a.name == "resource_version"
	}
	for _, query := range []string{
		fmt.Sprintf(`CREATE UNIQUE INDEX IF NOT EXISTS %s ON %s ("namespace", "name")`, quoted(s.table+"_names"), quoted(s.table)),
		fmt.Sprintf(`CREATE INDEX IF NOT EXISTS %s ON %s (%s)`, quoted(s.table+"_keys"), quoted(s.table), s.key()),
	} {
		if _, err := tx.ExecContext(ctx, query); err != nil {
			return false, err
		}
	}
	return adopted, nil
}

// begin sets the first version: it grows with time, so that one of a table that was dropped is
// none of this one.
func (s *statements) begin(ctx context.Context, tx *sql.Tx, history int) error {
	var newest int64
	version := quoted(s.table + "_version")
	// Without the versions, those of the rows are from before.
	query := fmt.Sprintf(`SELECT CASE WHEN EXISTS (SELECT 1 FROM %s) THEN 0 ELSE (SELECT COALESCE(MAX("resource_version"), 0) FROM %s) END`,
		version, quoted(s.table))
	if err := tx.QueryRowContext(ctx, query).Scan(&newest); err != nil {
		return err
	}
	start := max(time.Now().UnixMicro(), newest)
	insert := fmt.Sprintf(`INSERT INTO %s ("one", "version", "start", "history") VALUES (1, %s, %s, %s) ON CONFLICT DO NOTHING`,
		version, s.dialect.placeholder(1), s.dialect.placeholder(2), s.dialect.placeholder(3))
	if _, err := tx.ExecContext(ctx, insert, start, start, history); err != nil {
		return err
	}
	// Less of it takes effect at once. With more, what is forgotten stays so.
	set := fmt.Sprintf(`UPDATE %s SET "start" = CASE WHEN "start" > "version" - "history" THEN "start" ELSE "version" - "history" END, `+
		`"history" = %s WHERE "history" <> %s`, version, s.dialect.placeholder(1), s.dialect.placeholder(2))
	_, err := tx.ExecContext(ctx, set, history, history)
	return err
}
