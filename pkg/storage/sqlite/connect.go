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

// explain says what to do about an error of SQLite. The two implementations
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
		if strings.Contains(err.Error(), known.text) {
			return fmt.Errorf("%w; %s", err, known.advice)
		}
	}
	return err
}
