package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// emptyLegacy stands for the table of objects that kine's first release had.
// At every start kine counts the rows of that table and of its present one and,
// where the first count fails or is 0, never reads the second answer: a
// connection that stays open for good
// (https://github.com/k3s-io/kine/blob/v0.16.4/pkg/drivers/generic/generic.go).
// This view has one row to count and none to import.
const emptyLegacy = `CREATE VIEW IF NOT EXISTS key_value AS
	SELECT NULL AS id, NULL AS name, NULL AS value, 0 AS ttl`

// check opens the database, reads from it and writes to it.
func check(ctx context.Context, dsn string) (err error) {
	db, err := sql.Open(driverName, checkDSN(dsn))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	conn, err := db.Conn(ctx)
	if err != nil {
		return explain(err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	var name string
	switch err := conn.QueryRowContext(ctx, "SELECT name FROM sqlite_master WHERE name = 'kine'").Scan(&name); {
	case errors.Is(err, sql.ErrNoRows):
	case err != nil:
		return explain(err)
	default:
		var revision sql.NullInt64
		if err := conn.QueryRowContext(ctx, "SELECT MAX(id) FROM kine").Scan(&revision); err != nil {
			return explain(err)
		}
	}
	for _, statement := range []string{"BEGIN IMMEDIATE", emptyLegacy, "COMMIT"} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return explain(err)
		}
	}
	return nil
}

// explain says what to do about what SQLite reports. The two implementations
// share the texts and no types.
func explain(err error) error {
	for _, known := range []struct{ text, advice string }{
		{"not a database", "it is no SQLite database; move it away or choose another path"},
		{"malformed", "it is damaged; restore a copy or move it away"},
		{"readonly", "the file and its directory must be writable"},
		{"unable to open", "the file and its directory must be writable"},
		{"is full", "the disk is full; make room"},
		{"locked", "another program holds it open; stop that"},
	} {
		if strings.Contains(err.Error(), known.text) {
			return fmt.Errorf("%w; %s", err, known.advice)
		}
	}
	return err
}
