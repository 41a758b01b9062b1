package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/internal/filelock"
	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
)

const (
	// changesRows and changesBytes are how many rows of history are read at a
	// time, and how many bytes.
	changesRows  = 500
	changesBytes = 1 << 20
	// rowsPerCheck is how many rows are read between checks that the caller still waits.
	rowsPerCheck = 256
)

// log is a revision.Log in a SQLite file. One goroutine writes (writer), a few
// connections read. Reads see rows up to current, which moves when a transaction
// is on disk: it bounds each query, so no read sees more than one that began
// later.
type log struct {
	path   string // absolute, without links
	lock   *filelock.Lock
	follow revision.Follower
	writer *writer
	keeper *keeper
	db     *sql.DB // reads
	whole  bool    // the file is no copy that lacks SQLite's log
	read   struct{ key, list, count, changes *sql.Stmt }
	work   sync.WaitGroup
	stop   chan struct{}

	mu     sync.RWMutex
	closed bool
	// current is the newest revision. Reads below compacted are refused; asked is
	// the last revision that a caller of Compact gave. The log itself compacted
	// what lies between the two.
	current, compacted, asked int64
	// swept is the revision up to which history was dropped from the file, and
	// history the bytes of history since then.
	swept, history int64
	sweptAt        time.Time
	recent         revision.Recent
	counts         revision.Counts
}

// Append implements revision.Log.
func (l *log) Append(ctx context.Context, changes []revision.Change) (revision.Result, error) {
	r := &request{changes: changes, done: make(chan struct{})}
	if err := l.writer.submit(ctx, r); err != nil {
		return revision.Result{}, err
	}
	return r.result, r.err
}

// publish shows the writes of a transaction to reads, then to the follower.
func (l *log) publish(events []*revision.Event) {
	l.mu.Lock()
	after := l.current
	for _, e := range events {
		l.current = e.KV.Mod
		l.history += historySize(e)
		l.recent.Put(e.KV.Key, revision.LatestOf(e))
		l.counts.Apply(e)
	}
	through := l.current
	l.mu.Unlock()
	l.follow(after, events, through)
}

// historySize returns how many bytes of history an event made, counted as compactions
// count their victims.
func historySize(e *revision.Event) int64 {
	var n int64
	if e.Previous != nil {
		n = rowWeight + int64(len(e.KV.Key)+len(e.Previous.Value))
	}
	if e.Delete {
		n += rowWeight + int64(len(e.KV.Key))
	}
	return n
}

// rowWeight is how many bytes a row takes beside its name and value.
const rowWeight = 64

// Current implements revision.Log.
func (l *log) Current(context.Context) (current, compacted int64, err error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return 0, 0, revision.ErrClosed
	}
	return l.current, l.compacted, nil
}

// begin returns the revision at which a query is answered, and the newest one.
func (l *log) begin(ctx context.Context, asked int64) (at, current int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, 0, err
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	switch {
	case l.closed:
		return 0, 0, revision.ErrClosed
	case asked > l.current:
		return 0, 0, revision.ErrFuture
	case asked > 0 && asked < l.compacted:
		return 0, 0, revision.ErrCompacted
	case asked > 0:
		return asked, l.current, nil
	}
	return l.current, l.current, nil
}

// overtaken tells whether history that a read at a revision needs was dropped.
func (l *log) overtaken(at int64) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return at < l.compacted
}

// Range implements revision.Log.
func (l *log) Range(ctx context.Context, q revision.Query) (revision.Page, error) {
	for {
		page, at, err := l.page(ctx, q)
		if err != nil {
			return revision.Page{}, err
		}
		switch overtaken := l.overtaken(at); {
		case !overtaken:
			return page, nil
		case q.Revision > 0:
			return revision.Page{}, revision.ErrCompacted
		}
	}
}

func (l *log) page(ctx context.Context, q revision.Query) (page revision.Page, at int64, err error) {
	if q.End == "" {
		return l.pageOfKey(ctx, q)
	}
	at, current, err := l.begin(ctx, q.Revision)
	if err != nil {
		return page, 0, err
	}
	page.Revision = current
	if !q.CountOnly {
		limit := int64(-1)
		if q.Limit > 0 {
			limit = q.Limit
		}
		if page.KVs, err = l.list(ctx, q, at, limit); err != nil {
			return page, 0, err
		}
		n := int64(len(page.KVs))
		if q.Uncounted {
			return page, at, nil
		}
		if limit < 0 || n < limit {
			page.Count = n
			l.keepCount(q.Span, at, n)
			return page, at, nil
		}
	}
	if page.Count, err = l.count(q.Span, at); err != nil {
		return page, 0, err
	}
	l.mu.Lock()
	l.counts.SetRest(q.Span, at, &page)
	l.mu.Unlock()
	return page, at, nil
}

// pageOfKey answers a query for one key: from memory if the newest row is there.
func (l *log) pageOfKey(ctx context.Context, q revision.Query) (page revision.Page, at int64, err error) {
	at, page.Revision, err = l.begin(ctx, q.Revision)
	if err != nil {
		return page, 0, err
	}
	l.mu.RLock()
	known, ok := l.recent.Get(q.Key)
	if ok && q.Revision == 0 {
		at, page.Revision = l.current, l.current
	}
	l.mu.RUnlock()
	if ok = ok && known.Row <= at; !ok {
		if known, err = readKey(ctx, l.read.key, q.Key, at); err != nil {
			return page, 0, fmt.Errorf("read %s: %w", q.Key, err)
		}
		l.keep(q.Key, known, at)
	}
	if known.KV == nil {
		return page, at, nil
	}
	page.Count = 1
	if !q.CountOnly {
		kv := known.KV
		if q.KeysOnly {
			kv = withoutValue(kv)
		}
		page.KVs = []*revision.KeyValue{kv}
	}
	return page, at, nil
}

func withoutValue(kv *revision.KeyValue) *revision.KeyValue {
	without := *kv
	without.Value = nil
	return &without
}

// keep remembers the row read for a key, unless something was written since.
func (l *log) keep(key string, known revision.Latest, at int64) {
	if known.Row == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == at {
		l.recent.Put(key, known)
	}
}

// keepCount remembers how many keys a span has, unless something was written since.
func (l *log) keepCount(s revision.Span, at, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == at {
		l.counts.Set(s, n)
	}
}

// readKey finds the newest row of a key that is not newer than a revision.
func readKey(ctx context.Context, key *sql.Stmt, name string, at int64) (revision.Latest, error) {
	if err := ctx.Err(); err != nil {
		return revision.Latest{}, err
	}
	var r row
	// Waiting for the end of ctx takes a goroutine, too much for one row.
	switch err := key.QueryRowContext(context.WithoutCancel(ctx), name, at).Scan(r.fields()...); {
	case errors.Is(err, sql.ErrNoRows):
		return revision.Latest{}, nil
	case err != nil:
		return revision.Latest{}, explain(err)
	case r.deleted:
		return revision.Latest{Row: r.id}, nil
	}
	return revision.Latest{KV: r.keyValue(), Row: r.id}, nil
}

// list reads the keys of a span at a revision.
func (l *log) list(ctx context.Context, q revision.Query, at, limit int64) (kvs []*revision.KeyValue, err error) {
	rows, err := l.read.list.QueryContext(context.WithoutCancel(ctx), q.Key, end(q.Span), at, limit)
	err = each(rows, err, func() error {
		var r row
		if err := rows.Scan(r.fields()...); err != nil {
			return err
		}
		kv := r.keyValue()
		if n := len(kvs); n > 0 && kvs[n-1].Key >= kv.Key {
			return fmt.Errorf("%s comes after %s: the index is damaged; restore a copy", kv.Key, kvs[n-1].Key)
		}
		if q.KeysOnly {
			kv.Value = nil
		}
		if kvs = append(kvs, kv); len(kvs)%rowsPerCheck == 0 {
			return ctx.Err()
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", q.Key, err)
	}
	return kvs, nil
}

// end returns the end of a span in SQL.
func end(s revision.Span) string {
	switch s.End {
	case "":
		return s.Key + "\x00"
	case revision.NoEnd:
		return lastName
	}
	return s.End
}

// count counts the keys of a span at a revision.
func (l *log) count(s revision.Span, at int64) (n int64, err error) {
	l.mu.RLock()
	n, known := l.counts.Get(s, at, l.current)
	l.mu.RUnlock()
	if known {
		return n, nil
	}
	if err := l.read.count.QueryRow(s.Key, end(s), at).Scan(&n); err != nil {
		return 0, fmt.Errorf("count %s: %w", s.Key, explain(err))
	}
	l.keepCount(s, at, n)
	return n, nil
}

// Changes implements revision.Log.
func (l *log) Changes(ctx context.Context, s revision.Span, after int64) ([]*revision.Event, int64, error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	current, compacted, err := l.Current(ctx)
	if err != nil {
		return nil, 0, err
	}
	if after >= current {
		return nil, after, nil
	}
	if after+1 < compacted {
		return nil, 0, revision.ErrCompacted
	}
	events, through, err := l.changes(ctx, s, after, current)
	if err != nil {
		return nil, 0, fmt.Errorf("read changes after revision %d: %w", after, err)
	}
	if l.overtaken(after + 1) {
		return nil, 0, revision.ErrCompacted
	}
	if len(events) > 0 {
		events[0] = events[0].After(compacted)
	}
	return events, through, nil
}

func (l *log) changes(ctx context.Context, s revision.Span, after, current int64) (events []*revision.Event, through int64, err error) {
	rows, err := l.read.changes.QueryContext(context.WithoutCancel(ctx), after, current, s.Key, end(s), changesRows)
	if err != nil {
		return nil, 0, explain(err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	n, size := 0, 0
	for rows.Next() {
		var r, previous row
		if err := rows.Scan(append(r.fields(), previous.fields()...)...); err != nil {
			return nil, 0, explain(err)
		}
		n++
		through = r.id
		if !r.isObject() {
			continue
		}
		e := event(&r)
		if previous.id != 0 && !previous.deleted && !r.created {
			e.Previous = previous.keyValue()
		}
		events = append(events, e)
		if size += e.Size(); size >= changesBytes {
			return events, through, nil
		}
	}
	if err := rows.Err(); err != nil {
		return nil, 0, explain(err)
	}
	if n < changesRows {
		through = current
	}
	return events, through, nil
}

// event returns the change that a row stands for, without the state before it.
func event(r *row) *revision.Event {
	if r.deleted {
		return &revision.Event{Delete: true, KV: revision.KeyValue{Key: r.name, Mod: r.id}}
	}
	return &revision.Event{KV: *r.keyValue()}
}

// Expiring implements revision.Log.
func (l *log) Expiring(ctx context.Context) (kvs []*revision.KeyValue, err error) {
	rows, err := l.db.QueryContext(ctx, expiring)
	err = each(rows, err, func() error {
		kv := &revision.KeyValue{}
		kvs = append(kvs, kv)
		return rows.Scan(&kv.Key, &kv.Mod, &kv.Expires)
	})
	return kvs, err
}

// History implements revision.Log.
func (l *log) History() (bytes int64, dropped time.Time) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.history, l.sweptAt
}

// Size implements revision.Log: the part of the file that is in use.
func (l *log) Size(ctx context.Context) (int64, error) {
	total, free, size, err := pagesOf(ctx, l.db)
	return (total - free) * size, err
}

// pagesOf is how many pages a file has, how many of them are free, and their size.
func pagesOf(ctx context.Context, db *sql.DB) (total, free, size int64, err error) {
	err = db.QueryRowContext(ctx, pages).Scan(&total, &free, &size)
	return total, free, size, explain(err)
}
