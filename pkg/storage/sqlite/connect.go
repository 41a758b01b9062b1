package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
)

// readers is how many connections read at a time. Each may hold 2 MiB of pages.
const readers = 4

// connector opens connections to a file and runs statements on each.
type connector struct {
	path  string
	setup []string
}

// connect returns a pool of at most n connections to a file. They sort in
// memory: the directory for temporary files may be read-only.
func connect(path string, n int, setup ...string) *sql.DB {
	common := []string{"PRAGMA busy_timeout = 5000", "PRAGMA temp_store = MEMORY"}
	db := sql.OpenDB(connector{path: path, setup: append(common, setup...)})
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	return db
}

// Connect implements driver.Connector.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := implementation().Open(c.path)
	if err != nil {
		return nil, err
	}
	execer, ok := conn.(driver.ExecerContext)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%T cannot run statements", conn), conn.Close())
	}
	for _, statement := range c.setup {
		if _, err := execer.ExecContext(ctx, statement, nil); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return conn, nil
}

// Driver implements driver.Connector.
func (connector) Driver() driver.Driver { return implementation() }

// prepare prepares statements with the method of a connection or of a pool of them.
func prepare(ctx context.Context, with func(context.Context, string) (*sql.Stmt, error), to map[**sql.Stmt]string) (err error) {
	for statement, text := range to {
		if *statement, err = with(ctx, text); err != nil {
			return fmt.Errorf("prepare a statement: %w", err)
		}
	}
	return nil
}

// each calls f for each row of a query's answer.
func each(rows *sql.Rows, err error, f func() error) error {
	if err != nil {
		return explain(err)
	}
	for rows.Next() {
		if err := f(); err != nil {
			return errors.Join(err, rows.Close())
		}
	}
	return explain(errors.Join(rows.Err(), rows.Close()))
}

// drain runs statements that do their work while their rows are read.
func drain(ctx context.Context, conn *sql.Conn, statements ...string) error {
	for _, statement := range statements {
		rows, err := conn.QueryContext(ctx, statement)
		if err := each(rows, err, func() error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// explain says what to do about an error of SQLite, once. The two implementations
// share the texts but no types.
func explain(err error) error {
	if err == nil {
		return nil
	}
	for _, known := range []struct{ text, advice string }{
		{"not a database", "it is not a SQLite database; move it away or choose another path"},
		{"malformed", "it is damaged; restore a copy or move it away"},
		{"readonly", "the file and its directory must be writable"},
		{"unable to open", "the file and its directory must be writable"},
		{"is full", "the disk is full; make room"},
		{"locked", "another program has it open; stop that program"},
	} {
		if text := err.Error(); strings.Contains(text, known.text) && !strings.Contains(text, known.advice) {
			return fmt.Errorf("%w; %s", err, known.advice)
		}
	}
	return err
}
