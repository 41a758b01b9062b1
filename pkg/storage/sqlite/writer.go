package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/k3s-io/kine/pkg/drivers/generic"
	"github.com/k3s-io/kine/pkg/server"
)

// maxTogether is how many rows share a transaction at most, so that none waits
// for long.
const maxTogether = 100

// addRow is kine's statement as one that adds a single row, which SQLite can undo
// without a journal of its own.
const addRow = `INSERT INTO kine(name, created, deleted, create_revision, prev_revision, lease, value, old_value)
	VALUES (?, ?, ?, ?, ?, ?, ?, (SELECT value FROM kine WHERE id = ?))`

// writer adds rows in the order in which they come, all that wait in one
// transaction. SQLite has one writer at a time, and syncs the disk for each
// transaction.
type writer struct {
	db      *generic.Generic
	queue   chan *row
	stopped chan struct{}

	// What follows is run's own. conn is nil until a row comes, and after a
	// transaction that failed.
	conn   *sql.Conn
	insert *sql.Stmt
}

// row is a row to add; id and err may be read when done is closed.
type row struct {
	values []any
	done   chan struct{}
	id     int64
	err    error
}

func newWriter(db *generic.Generic) *writer {
	return &writer{db: db, queue: make(chan *row), stopped: make(chan struct{})}
}

// add returns the number of the row that it added, which is on disk then, or
// server.ErrKeyExists when another row follows the same one. A row whose turn
// has come is added even if ctx ends.
func (w *writer) add(ctx context.Context, values ...any) (int64, error) {
	r := &row{values: values, done: make(chan struct{})}
	select {
	case w.queue <- r:
		<-r.done
		return r.id, r.err
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-w.stopped:
		return 0, errors.New("the storage stops")
	}
}

// run adds rows until ctx ends.
func (w *writer) run(ctx context.Context) {
	defer close(w.stopped)
	defer w.close()
	for {
		select {
		case <-ctx.Done():
			return
		case first := <-w.queue:
			w.write(w.waiting(first))
		}
	}
}

// waiting returns first and the rows that wait behind it.
func (w *writer) waiting(first *row) []*row {
	rows := []*row{first}
	for len(rows) < maxTogether {
		select {
		case r := <-w.queue:
			rows = append(rows, r)
		default:
			return rows
		}
	}
	return rows
}

// write adds rows and tells who waits for them.
func (w *writer) write(rows []*row) {
	w.db.Lock()
	defer w.db.Unlock()
	if len(rows) == 1 || w.together(rows) != nil {
		// One row needs no transaction of ours. When several failed, each gets
		// a try, and an error, of its own.
		for _, r := range rows {
			r.id, r.err = w.one(r.values)
		}
	}
	for _, r := range rows {
		close(r.done)
	}
}

// together adds rows in one transaction, all but those whose key exists, or
// none when it returns an error. Where no transaction begins, because another
// program holds the file, that is the error of each row: alone, each would wait
// as long.
func (w *writer) together(rows []*row) error {
	if err := w.begin(); err != nil {
		w.close()
		for _, r := range rows {
			r.err = err
		}
		return nil
	}
	var err error
	for i := 0; i < len(rows) && err == nil; i++ {
		r := rows[i]
		if r.id, r.err = w.one(r.values); !errors.Is(r.err, server.ErrKeyExists) {
			err = r.err
		}
	}
	if err == nil {
		_, err = w.conn.ExecContext(context.Background(), "COMMIT")
	}
	if err != nil {
		// SQLite ends the transaction after some errors and not after others.
		// The end of the connection ends it in any case.
		w.close()
	}
	return err
}

// begin begins a transaction that may write.
func (w *writer) begin() error {
	if err := w.open(); err != nil {
		return err
	}
	_, err := w.conn.ExecContext(context.Background(), "BEGIN IMMEDIATE")
	return err
}

// one adds a row.
func (w *writer) one(values []any) (int64, error) {
	if err := w.open(); err != nil {
		return 0, err
	}
	result, err := w.insert.Exec(values...)
	if err != nil {
		return 0, w.db.TranslateErr(err)
	}
	return result.LastInsertId()
}

// open makes a connection where there is none. It is the writer's own: SQLite
// forgets the pages that a connection knows when another one writes.
func (w *writer) open() error {
	if w.conn != nil {
		return nil
	}
	ctx := context.Background()
	conn, err := w.db.DB.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	w.conn = conn
	if w.insert, err = conn.PrepareContext(ctx, addRow); err != nil {
		w.close()
		return fmt.Errorf("prepare to add rows: %w", err)
	}
	return nil
}

// close ends the connection itself, where conn.Close would keep it for others.
// One with a statement would stay open, and database/sql closes none that
// belongs to a connection.
func (w *writer) close() {
	if w.conn == nil {
		return
	}
	if w.insert != nil {
		_ = w.insert.Close()
	}
	_ = w.conn.Raw(func(any) error { return driver.ErrBadConn })
	w.conn, w.insert = nil, nil
}
