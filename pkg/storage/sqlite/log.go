package sqlite

import (
	"context"
	"database/sql"
	"sync/atomic"

	"github.com/k3s-io/kine/pkg/logstructured/sqllog"
	"github.com/k3s-io/kine/pkg/server"
)

// log is kine's, with reads that fail where the database does. kine takes a
// query that ends with an error for one that found no more rows
// (https://github.com/k3s-io/kine/blob/v0.16.4/pkg/logstructured/sqllog/sql.go, RowsToEvents).
// Its loop for new events may do so: it comes back to what it has not seen. And it
// knows its own last row, where kine loses one of two that end at the same time.
type log struct {
	*sqllog.SQLLog
	dialect *dialect
	last    atomic.Int64
}

// Append implements logstructured.Log.
func (l *log) Append(ctx context.Context, event *server.Event) (int64, error) {
	revision, err := l.SQLLog.Append(ctx, event)
	for old := l.last.Load(); revision > old && !l.last.CompareAndSwap(old, revision); {
		old = l.last.Load()
	}
	return revision, err
}

// CurrentRevision implements logstructured.Log.
func (l *log) CurrentRevision(ctx context.Context) (int64, error) {
	revision, err := l.SQLLog.CurrentRevision(ctx)
	return max(revision, l.last.Load()), err
}

// List implements logstructured.Log.
//
//nolint:revive // the parameters are logstructured.Log's
func (l *log) List(
	ctx context.Context, key, end string, limit, revision int64, includeDeleted, keysOnly bool,
) (int64, server.Events, error) {
	var rows *sql.Rows
	var err error
	if revision == 0 {
		rows, err = l.dialect.ListCurrent(ctx, key, end, limit, includeDeleted, keysOnly)
	} else {
		rows, err = l.dialect.List(ctx, key, end, limit, revision, includeDeleted, keysOnly)
	}
	if err != nil {
		return 0, nil, err
	}
	current, compacted, events, err := read(rows, !keysOnly, false)
	if err == nil && len(events) == 0 { // which come with both revisions
		current, compacted, err = l.revisions(ctx)
	}
	switch {
	case err != nil:
		return 0, nil, err
	case revision > current:
		return current, nil, server.ErrFutureRev
	case revision > 0 && revision < compacted:
		return current, nil, server.ErrCompacted
	}
	return current, events, nil
}

// After implements logstructured.Log.
func (l *log) After(ctx context.Context, key, end string, revision, limit int64) (int64, server.Events, error) {
	rows, err := l.dialect.After(ctx, key, end, revision, limit)
	if err != nil {
		return 0, nil, err
	}
	current, compacted, events, err := read(rows, true, true)
	if err == nil && len(events) == 0 {
		current, compacted, err = l.revisions(ctx)
	}
	switch {
	case err != nil:
		return 0, nil, err
	case revision > 0 && revision < compacted:
		return current, nil, server.ErrCompacted
	}
	return current, events, nil
}

// read returns the current revision, that of the last compaction and the events
// of all rows.
func read(rows *sql.Rows, values, before bool) (current, compacted int64, events server.Events, err error) {
	current, compacted, events, err = sqllog.RowsToEvents(rows, values, before)
	if err == nil {
		err = rows.Err()
	}
	return current, compacted, events, err
}

// revisions are those that rows come with, where there are none.
func (l *log) revisions(ctx context.Context) (current, compacted int64, err error) {
	if current, err = l.CurrentRevision(ctx); err != nil {
		return 0, 0, err
	}
	compacted, err = l.dialect.GetCompactRevision(ctx)
	return current, compacted, err
}
