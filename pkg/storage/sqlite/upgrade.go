package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"
)

// newSuffix is the suffix of the copy that replaces an old file.
const newSuffix = ".new"

// copyRows is how many rows are copied at a time.
const copyRows = 1000

// upgrade makes the tables of a new file, which has none, and brings one that kine wrote
// up to date: its rows are copied into a new file, which then replaces it. Until then it
// is unchanged; an interrupted copy begins again.
func upgrade(ctx context.Context, path string, has map[string]bool) (err error) {
	if err := os.Remove(path + newSuffix); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the copy of an interrupted upgrade: %w", err)
	}
	db := connect(path, 1)
	defer func() { err = errors.Join(err, db.Close()) }()
	switch {
	case len(has) == 0:
		return createNew(ctx, db)
	case !has["kine"]:
		return errors.New("it is the database of another program; choose another path")
	}
	if err := checkFreeSpace(path); err != nil {
		return err
	}
	if err := copyInto(ctx, db, path); err != nil {
		return fmt.Errorf("upgrade the file: %w", errors.Join(explain(err), os.Remove(path+newSuffix)))
	}
	return nil
}

// tables returns the names of the tables in a file.
func tables(ctx context.Context, db *sql.DB) (has map[string]bool, err error) {
	has = map[string]bool{}
	rows, err := db.QueryContext(ctx, "SELECT name FROM sqlite_master WHERE type = 'table'")
	err = each(rows, err, func() error {
		var name string
		err := rows.Scan(&name)
		has[name] = true
		return err
	})
	return has, err
}

// createNew makes the tables in an empty file.
func createNew(ctx context.Context, db *sql.DB) error {
	statements := []string{"PRAGMA auto_vacuum = INCREMENTAL", "PRAGMA journal_mode = WAL", "BEGIN IMMEDIATE"}
	statements = append(append(statements, create("main")...), index("main")...)
	statements = append(statements, firstRow, fmt.Sprintf("INSERT INTO sailplane_meta VALUES ('%s', %d), ('%s', 1)",
		metaLayout, layout, metaClean), "COMMIT")
	return onOne(ctx, db, statements...)
}

// onOne runs statements on one connection.
func onOne(ctx context.Context, db *sql.DB, statements ...string) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return explain(err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	return drain(ctx, conn, statements...)
}

// checkFreeSpace fails if there is no room for a copy of the file.
func checkFreeSpace(path string) error {
	need := sizeOf(path) + sizeOf(path+"-wal")
	if free, known := freeSpace(filepath.Dir(path)); known && free < need+need/10 {
		return fmt.Errorf("an older version wrote the file, and its upgrade needs room for a copy: "+
			"%d MiB must be free, but only %d MiB are: make room", (need+need/10)>>20+1, free>>20)
	}
	return nil
}

// copyInto copies the rows of a file that kine wrote into a new one, which
// replaces it.
func copyInto(ctx context.Context, db *sql.DB, path string) error {
	// SQLite's log belongs to the old file: it must not be there beside the new one.
	if err := onOne(ctx, db, "PRAGMA journal_mode = DELETE"); err != nil {
		return err
	}
	if log := sizeOf(path + "-wal"); log > 0 {
		return errors.New("SQLite's log could not be moved into the file: another program has it open; stop that program")
	}
	if err := touch(path + newSuffix); err != nil {
		return err
	}
	if err := fill(ctx, db, path); err != nil {
		return err
	}
	if err := db.Close(); err != nil {
		return err
	}
	if err := syncFile(path + newSuffix); err != nil {
		return err
	}
	if err := os.Rename(path+newSuffix, path); err != nil {
		return err
	}
	return syncFile(filepath.Dir(path))
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// fill makes the new file, which is attached.
func fill(ctx context.Context, db *sql.DB, path string) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if _, err := conn.ExecContext(ctx, "ATTACH DATABASE ? AS new", path+newSuffix); err != nil {
		return err
	}
	statements := append([]string{
		"PRAGMA new.auto_vacuum = INCREMENTAL", "PRAGMA new.journal_mode = OFF", "PRAGMA new.synchronous = OFF",
	}, create("new")...)
	if err := drain(ctx, conn, statements...); err != nil {
		return err
	}
	if err := copyTable(ctx, conn, path); err != nil {
		return err
	}
	return drain(ctx, conn, append(index("new"),
		fmt.Sprintf(`INSERT INTO new.sailplane_row (id, expires)
			SELECT id, %d + lease * 1000 FROM new.kine WHERE lease > 0 AND deleted = 0`,
			time.Now().UnixMilli()),
		fmt.Sprintf("INSERT INTO new.sailplane_meta VALUES ('%s', %d), ('%s', 0)", metaLayout, layout, metaClean),
		"DETACH DATABASE new")...)
}

func copyTable(ctx context.Context, conn *sql.Conn, path string) error {
	var last, newest int64
	if err := conn.QueryRowContext(ctx, "SELECT COALESCE(MAX(id), 0) FROM main.kine").Scan(&newest); err != nil {
		return err
	}
	said := time.Now()
	klog.InfoS("Upgrading the file by copying it", "file", path, "bytes", sizeOf(path))
	for last < newest {
		_, err := conn.ExecContext(ctx, `INSERT INTO new.kine
			(id, name, created, deleted, create_revision, prev_revision, lease, value)
			SELECT id, name, created, deleted, create_revision, prev_revision, lease, value
			FROM main.kine WHERE id > ? ORDER BY id LIMIT ?`, last, copyRows)
		if err != nil {
			return fmt.Errorf("copy rows after revision %d: %w", last, err)
		}
		if err := conn.QueryRowContext(ctx, "SELECT MAX(id) FROM new.kine").Scan(&last); err != nil {
			return err
		}
		if time.Since(said) >= progressEvery {
			said = time.Now()
			klog.InfoS("Upgrading the file", "file", path, "revision", last, "of", newest)
		}
	}
	return nil
}
