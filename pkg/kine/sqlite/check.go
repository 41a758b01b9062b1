package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// check opens the database, reads from it and takes its write lock.
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
	for _, statement := range []string{"BEGIN IMMEDIATE", "ROLLBACK"} {
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
