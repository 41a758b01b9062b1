package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/k3s-io/kine/pkg/drivers/generic"
)

// maxConnections is how many connections are used at a time, and kept. Each may
// hold 2 MiB of pages.
const maxConnections = 10

// dialect is kine's, with statements that are prepared once and with writes
// that share transactions. kine has SQLite read the text of a query each time,
// and syncs the disk for each row.
type dialect struct {
	*generic.Generic
	writes *writer
	// key reads the newest row of a key without its value, value with it, after
	// the rows of a batch of events, and compacted the revision of the last
	// compaction.
	key, value, after, compacted *sql.Stmt
}

// newDialect prepares what is asked most. The end of the database closes it.
func newDialect(ctx context.Context, db *generic.Generic) (*dialect, error) {
	db.DB.SetMaxOpenConns(maxConnections)
	db.DB.SetMaxIdleConns(maxConnections)
	d := &dialect{Generic: db, writes: newWriter(db)}
	for _, s := range []struct {
		to   **sql.Stmt
		text string
	}{
		{&d.key, db.GetSingleSQL.Query},
		{&d.value, db.GetSingleValSQL.Query},
		{&d.after, db.AfterAllOldValSQL.Appendf("LIMIT %d", batchSize).Query},
		{&d.compacted, db.CompactRevSQL.Query},
	} {
		statement, err := db.DB.PrepareContext(ctx, s.text)
		if err != nil {
			return nil, fmt.Errorf("prepare a query: %w", err)
		}
		*s.to = statement
	}
	return d, nil
}

// ListCurrent implements server.Dialect.
//
//nolint:revive // the parameters are server.Dialect's
func (d *dialect) ListCurrent(ctx context.Context, key, end string, limit int64, includeDeleted, keysOnly bool) (*sql.Rows, error) {
	if end != "" {
		return d.Generic.ListCurrent(ctx, key, end, limit, includeDeleted, keysOnly)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	statement := d.value
	if keysOnly {
		statement = d.key
	}
	// To wait for the end of ctx takes two goroutines, more than one row is worth.
	return statement.QueryContext(context.WithoutCancel(ctx), key, includeDeleted)
}

// After implements server.Dialect.
func (d *dialect) After(ctx context.Context, key, end string, revision, limit int64) (*sql.Rows, error) {
	if key != "" || limit != batchSize {
		return d.Generic.After(ctx, key, end, revision, limit)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return d.after.QueryContext(context.WithoutCancel(ctx), revision)
}

// GetCompactRevision implements server.Dialect.
func (d *dialect) GetCompactRevision(ctx context.Context) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	var revision int64
	err := d.compacted.QueryRowContext(context.WithoutCancel(ctx)).Scan(&revision)
	return revision, err
}

// Insert implements server.Dialect.
//
//nolint:revive // the parameters are server.Dialect's
func (d *dialect) Insert(
	ctx context.Context, key string, create, del bool, createRevision, previousRevision, lease int64, value []byte,
) (int64, error) {
	return d.writes.add(ctx, key, create, del, createRevision, previousRevision, lease, value, previousRevision)
}

// CurrentRevision implements server.Dialect, with an answer where a watch begins
// while the storage stops. kine takes the error for a reason to have no channel
// of events, and waits on that without end
// (https://github.com/k3s-io/kine/blob/v0.16.4/pkg/logstructured/sqllog/sql.go, Watch).
func (d *dialect) CurrentRevision(ctx context.Context) (int64, error) {
	revision, err := d.Generic.CurrentRevision(ctx)
	if err != nil && ctx.Err() != nil {
		return 0, nil //nolint:nilerr // see above: the storage stops
	}
	return revision, err
}
