package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/k3s-io/kine/pkg/server"
)

// started is a storage that runs, and is stopped by the test.
func started(t *testing.T) *storage {
	t.Helper()
	s := File{Path: filepath.Join(t.TempDir(), "state.db")}.Open().(*storage)
	must(t, s.Start(t.Context()))
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// rowOf are the values of a row that creates a key.
func rowOf(key string, value []byte) []any {
	return []any{key, true, false, 0, 0, 0, value, 0}
}

// TestWritersTogether: of those who write the same key one wins, in whatever
// transactions they meet, and every other key is written.
func TestWritersTogether(t *testing.T) {
	s := started(t)
	d, err := newDialect(t.Context(), s.db)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running, writers sync.WaitGroup
	running.Go(func() { d.writes.run(ctx) })
	const keys, each = 50, 4
	ids, errs := make([]int64, keys*each), make([]error, keys*each)
	for i := range ids {
		writers.Go(func() {
			ids[i], errs[i] = d.Insert(ctx, fmt.Sprintf("/together/%d", i%keys), true, false, 0, 0, 0, []byte("x"))
		})
	}
	writers.Wait()
	won, seen := map[int]int{}, map[int64]bool{}
	for i, err := range errs {
		switch {
		case err == nil && !seen[ids[i]]:
			won[i%keys]++
			seen[ids[i]] = true
		case !errors.Is(err, server.ErrKeyExists):
			t.Errorf("writer %d: revision %d, %v", i, ids[i], err)
		}
	}
	for key := range keys {
		if won[key] != 1 {
			t.Errorf("key %d: %d writers won, want 1", key, won[key])
		}
	}
	if n := count(t, s, "/together/%"); n != keys {
		t.Errorf("%d rows, want %d", n, keys)
	}
	cancel()
	running.Wait()
	if _, err := d.Insert(t.Context(), "/late", true, false, 0, 0, 0, nil); err == nil || !strings.Contains(err.Error(), "stops") {
		t.Errorf("after the end: got %v", err)
	}
}

// TestFailedTransaction: rows whose transaction fails are added one by one, and
// leave nothing behind of the first try.
func TestFailedTransaction(t *testing.T) {
	s := started(t)
	w := newWriter(s.db)
	must(t, w.open())
	// The connection, and not those after it, finds the disk full.
	var pages int
	must(t, w.conn.QueryRowContext(t.Context(), "PRAGMA page_count").Scan(&pages))
	_, err := w.conn.ExecContext(t.Context(), fmt.Sprintf("PRAGMA max_page_count = %d", pages+20))
	must(t, err)
	var rows []*row
	for i := range 5 {
		rows = append(rows, &row{values: rowOf(fmt.Sprintf("/failed/%d", i), bytes.Repeat([]byte{1}, 40<<10)), done: make(chan struct{})})
	}
	if err := w.together(rows); err == nil || !strings.Contains(err.Error(), "full") {
		t.Fatalf("got %v, want an error about a full disk", err)
	}
	if n := count(t, s, "/failed/%"); n != 0 {
		t.Errorf("%d rows of a transaction that failed", n)
	}
	w.write(rows)
	for _, r := range rows {
		<-r.done
		if r.err != nil || r.id == 0 {
			t.Errorf("%s: revision %d, %v", r.values[0], r.id, r.err)
		}
	}
	if n := count(t, s, "/failed/%"); n != len(rows) {
		t.Errorf("%d rows, want %d", n, len(rows))
	}
	w.close()
}

// TestFailedRow: a row that cannot be added has the reason as its error, and those
// after it are added.
func TestFailedRow(t *testing.T) {
	s := started(t)
	w := newWriter(s.db)
	defer w.close()
	must(t, w.open())
	var pages int
	must(t, w.conn.QueryRowContext(t.Context(), "PRAGMA page_count").Scan(&pages))
	_, err := w.conn.ExecContext(t.Context(), fmt.Sprintf("PRAGMA max_page_count = %d", pages))
	must(t, err)
	big := &row{values: rowOf("/big", bytes.Repeat([]byte{1}, 40<<10)), done: make(chan struct{})}
	w.write([]*row{big})
	if big.err == nil || !strings.Contains(big.err.Error(), "full") {
		t.Errorf("got %v, want an error about a full disk", big.err)
	}
	first := &row{values: rowOf("/small", nil), done: make(chan struct{})}
	again := &row{values: rowOf("/small", nil), done: make(chan struct{})}
	w.write([]*row{first, again})
	if first.err != nil || !errors.Is(again.err, server.ErrKeyExists) {
		t.Errorf("after a row that failed: got %v, and %v of the same key", first.err, again.err)
	}
}

// TestLockedFile: rows that wait for another program wait together, not one after
// the other.
func TestLockedFile(t *testing.T) {
	s := started(t)
	other, err := s.db.DB.BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { must(t, other.Rollback()) }()
	w := newWriter(s.db)
	defer w.close()
	must(t, w.open())
	// Another connection would wait for 30 s.
	_, err = w.conn.ExecContext(t.Context(), "PRAGMA busy_timeout = 10")
	must(t, err)
	var rows []*row
	for i := range 5 {
		rows = append(rows, &row{values: rowOf(fmt.Sprintf("/locked/%d", i), nil), done: make(chan struct{})})
	}
	w.write(rows)
	for _, r := range rows {
		<-r.done
		if r.err == nil || !strings.Contains(r.err.Error(), "locked") {
			t.Errorf("%s: got %v, want an error about a locked file", r.values[0], r.err)
		}
	}
	if w.conn != nil {
		t.Error("rows waited once more, on another connection")
	}
}

func count(t *testing.T, s *storage, like string) (n int) {
	t.Helper()
	must(t, s.db.DB.QueryRow("SELECT COUNT(*) FROM kine WHERE name LIKE ?", like).Scan(&n))
	return n
}
