package sqllog

import (
	"context"
	"fmt"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
)

// Current implements revision.Log.
func (l *log) Current(ctx context.Context) (current, compacted int64, err error) {
	known := l.reading()
	at, err := l.db.Position(ctx)
	if err == nil {
		err = l.saw(at, known)
	}
	if err != nil {
		return 0, 0, l.explain(err)
	}
	return at.Current, at.Compacted, nil
}

// explain tells an error of the database from one of a log that was closed meanwhile.
func (l *log) explain(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return revision.ErrClosed
	}
	return err
}

// check takes in where the log stood at a read that began when a revision was known, and says
// whether the read could have been answered.
func (l *log) check(at Position, known, asked int64) error {
	err := l.saw(at, known)
	switch {
	case err != nil:
		return err
	case asked > at.Current:
		return revision.ErrFuture
	case asked > 0 && asked < at.Compacted:
		return revision.ErrCompacted
	}
	return nil
}

// Range implements revision.Log.
func (l *log) Range(ctx context.Context, q revision.Query) (revision.Page, error) {
	var page revision.Page
	var err error
	switch {
	case q.End == "":
		page, err = l.pageOfKey(ctx, q)
	case q.CountOnly:
		page, err = l.pageOfCount(ctx, q)
	default:
		page, err = l.pageOfList(ctx, q)
	}
	if err != nil {
		return revision.Page{}, err
	}
	return page, nil
}

// pageOfKey answers a query for one key.
func (l *log) pageOfKey(ctx context.Context, q revision.Query) (page revision.Page, err error) {
	l.mu.Lock()
	known, ok := l.recent.Get(q.Key)
	told := l.told
	l.mu.Unlock()
	at, row, err := l.db.Get(ctx, Known{Key: q.Key, ID: known.Row}, q.Revision)
	if err != nil {
		return page, fmt.Errorf("read %s: %w", q.Key, l.explain(err))
	}
	if err := l.check(at, told, q.Revision); err != nil {
		return page, err
	}
	page.Revision = at.Current
	kv := row.keyValue()
	if ok && row.ID == known.Row {
		kv = known.KV
	} else if q.Revision == 0 {
		l.keep(row, kv, at.Current)
	}
	if kv == nil {
		return page, nil
	}
	page.Count = 1
	switch {
	case q.CountOnly:
	case q.KeysOnly:
		without := *kv
		without.Value = nil
		page.KVs = []*revision.KeyValue{&without}
	default:
		page.KVs = []*revision.KeyValue{kv}
	}
	return page, nil
}

// keep remembers the newest row of a key, unless a later one may be known.
func (l *log) keep(row Row, kv *revision.KeyValue, at int64) {
	if row.ID == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told <= at {
		l.recent.Put(row.Name, revision.Latest{KV: kv, Row: row.ID})
	}
}

func (l *log) pageOfCount(ctx context.Context, q revision.Query) (page revision.Page, err error) {
	told := l.reading()
	at, n, err := l.db.Count(ctx, q.Span, q.Revision)
	if err != nil {
		return page, fmt.Errorf("count %s: %w", q.Key, l.explain(err))
	}
	if err := l.check(at, told, q.Revision); err != nil {
		return page, err
	}
	return revision.Page{Revision: at.Current, Count: n}, nil
}

func (l *log) pageOfList(ctx context.Context, q revision.Query) (page revision.Page, err error) {
	for {
		page = revision.Page{}
		told := l.reading()
		at, err := l.db.List(ctx, q, func(r *Row) error {
			kv := r.keyValue()
			if q.KeysOnly {
				kv.Value = nil
			}
			if page.KVs = append(page.KVs, kv); len(page.KVs)%rowsPerCheck == 0 {
				return ctx.Err()
			}
			return nil
		})
		if err != nil {
			return page, fmt.Errorf("list %s: %w", q.Key, l.explain(err))
		}
		if err := l.check(at, told, q.Revision); err != nil {
			return page, err
		}
		page.Revision = at.Current
		n := int64(len(page.KVs))
		if q.Limit <= 0 || n < q.Limit {
			page.Count = n
			l.keepCount(q.Span, q.Revision, at.Current, n)
			return page, nil
		}
		if q.Uncounted {
			return page, nil
		}
		asked := q.Revision
		if asked == 0 {
			asked = at.Current
		}
		var known bool
		if page.Count, known = l.countAt(q.Span, asked); !known {
			at, page.Count, err = l.db.Count(ctx, q.Span, asked)
			switch {
			case err != nil:
				return page, fmt.Errorf("count %s: %w", q.Key, l.explain(err))
			case asked >= at.Compacted:
				l.keepCount(q.Span, asked, at.Current, page.Count)
			case q.Revision > 0:
				return page, revision.ErrCompacted
			default:
				continue
			}
		}
		l.keepRest(q.Span, asked, &page)
		return page, nil
	}
}

// countAt is how many keys a span had at a revision, if that is known.
func (l *log) countAt(s revision.Span, at int64) (n int64, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts.Get(s, at, l.told)
}

// keepRest remembers how many keys follow a page.
func (l *log) keepRest(s revision.Span, at int64, page *revision.Page) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.SetRest(s, at, page)
}

// keepCount remembers how many keys a span has, if the follower is where they were counted.
func (l *log) keepCount(s revision.Span, asked, current, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told == current && (asked == 0 || asked == current) {
		l.counts.Set(s, n)
	}
}

// Changes implements revision.Log.
func (l *log) Changes(ctx context.Context, s revision.Span, after int64) ([]*revision.Event, int64, error) {
	events, through, _, err := l.changes(ctx, s, after)
	return events, through, err
}

func (l *log) changes(ctx context.Context, s revision.Span, after int64) (events []*revision.Event, through int64, at Position, err error) {
	n, size, last := 0, 0, int64(0)
	told := l.reading()
	at, err = l.db.Changes(ctx, s, after, func(r, previous *Row) {
		n, size, last = n+1, size+len(r.Value), r.ID
		if !r.isObject() {
			return
		}
		var kv *revision.KeyValue
		if !r.Created {
			kv = previous.keyValue()
		}
		events = append(events, event(r, kv))
	})
	if err != nil {
		return nil, 0, at, fmt.Errorf("read changes after revision %d: %w", after, l.explain(err))
	}
	if err := l.saw(at, told); err != nil {
		return nil, 0, at, err
	}
	if after+1 < at.Compacted && after < at.Current {
		return nil, 0, at, revision.ErrCompacted
	}
	through = max(after, at.Current)
	if n == ChangesRows || size >= ChangesBytes {
		through = last
	}
	if len(events) > 0 {
		events[0] = events[0].After(at.Compacted)
	}
	return events, through, at, nil
}

// Expiring implements revision.Log.
func (l *log) Expiring(ctx context.Context) ([]*revision.KeyValue, error) {
	return l.db.Expiring(ctx)
}

// Size implements revision.Log.
func (l *log) Size(ctx context.Context) (int64, error) { return l.db.Size(ctx) }

// History implements revision.Log.
func (l *log) History() (bytes int64, dropped time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, l.seen.History), l.dropped
}
