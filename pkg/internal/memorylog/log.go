// Package memorylog keeps a log of revisions in memory.
package memorylog

import (
	"context"
	"sort"
	"sync"
	"time"

	"github.com/google/btree"

	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
)

const (
	// degree is the degree of the tree of keys.
	degree = 32
	// changesLimit is how many bytes of events are returned at a time.
	changesLimit = 1 << 20
	// compactStep is how many revisions are dropped while other calls wait.
	compactStep = 1000
	// eventSize is how many bytes an event takes beside its keys and values.
	eventSize = 128
)

// log is a revision.Log in memory: a tree of keys with their versions, and every
// change since the last compaction.
type log struct {
	follow revision.Follower
	limit  int64 // of history, in bytes

	mu     sync.RWMutex
	closed bool
	keys   *btree.BTreeG[*item]
	// events are the changes after the revision dropped, without gaps.
	events  []*revision.Event
	dropped int64
	// compacted is the revision of the last compaction, asked the last one that
	// a caller asked for. The log itself compacted what lies between the two.
	compacted, asked int64
	history          int64 // bytes of versions that are not the newest
	droppedAt        time.Time
	live             int64 // bytes of the newest versions
	counts           revision.Counts

	// compacting is held during a compaction.
	compacting sync.Mutex
}

// item is a key.
type item struct {
	key      string
	versions []*version // oldest first
}

// version is the state of a key from a revision on.
type version struct {
	revision.KeyValue
	deleted bool
}

// at returns the version that an item had at a revision, or nil.
func (i *item) at(rev int64) *version {
	n := sort.Search(len(i.versions), func(n int) bool { return i.versions[n].Mod > rev })
	if n == 0 || i.versions[n-1].deleted {
		return nil
	}
	return i.versions[n-1]
}

// New returns an empty log at a revision, which is 1 in a new etcd, and keeps at most limit
// bytes of history. What was before that revision is gone.
func New(f revision.Follower, limit, first int64) revision.Log { return newLog(f, limit, first) }

func newLog(f revision.Follower, limit, first int64) *log {
	return &log{
		follow: f, limit: limit, dropped: first, compacted: first, droppedAt: time.Now(),
		keys: btree.NewG(degree, func(a, b *item) bool { return a.key < b.key }),
	}
}

// current is the newest revision. The caller holds the lock.
func (l *log) current() int64 { return l.dropped + int64(len(l.events)) }

// Append implements revision.Log.
func (l *log) Append(ctx context.Context, changes []revision.Change) (revision.Result, error) {
	if err := ctx.Err(); err != nil {
		return revision.Result{}, err
	}
	result, full, err := l.append(changes)
	if full && l.compacting.TryLock() {
		l.trim()
		l.compacting.Unlock()
	}
	return result, err
}

func (l *log) append(changes []revision.Change) (result revision.Result, full bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return result, false, revision.ErrClosed
	}
	result = revision.Result{Refused: -1, Before: make([]*revision.KeyValue, len(changes))}
	found := make([]*item, len(changes))
	for i, c := range changes {
		var now *version
		if item, ok := l.keys.Get(&item{key: c.Key}); ok {
			found[i] = item
			now = item.at(l.current())
		}
		var mod int64
		if now != nil {
			result.Before[i], mod = &now.KeyValue, now.Mod
		}
		if c.Expect != revision.AnyRevision && c.Expect != mod {
			result.Refused, result.Revision = i, l.current()
			return result, false, nil
		}
	}
	events := make([]*revision.Event, 0, len(changes))
	for i, c := range changes {
		if c.Kind == revision.Check || c.Kind == revision.Delete && result.Before[i] == nil {
			continue
		}
		events = append(events, l.write(c, found[i], result.Before[i]))
	}
	result.Revision = l.current()
	if len(events) > 0 {
		l.follow(events[0].KV.Mod-1, events, result.Revision)
	}
	return result, l.history > l.limit, nil
}

// write makes an allowed change of a key; before is its state until then.
func (l *log) write(c revision.Change, i *item, before *revision.KeyValue) *revision.Event {
	v := &version{KeyValue: revision.KeyValue{Key: c.Key, Mod: l.current() + 1}}
	e := &revision.Event{Previous: before, Delete: c.Kind == revision.Delete}
	if e.Delete {
		v.deleted = true
		l.history += int64(v.Size())
	} else {
		v.Value, v.Expires, v.Create = c.Value, c.Expires, v.Mod
		if before != nil {
			v.Create = before.Create
		}
		l.live += int64(v.Size())
	}
	l.history += int64(before.Size())
	l.live -= int64(before.Size())
	l.history += eventSize
	e.KV = v.KeyValue
	if i == nil {
		i = &item{key: c.Key}
		l.keys.ReplaceOrInsert(i)
	}
	i.versions = append(i.versions, v)
	l.events = append(l.events, e)
	l.counts.Apply(e)
	return e
}

// Range implements revision.Log.
func (l *log) Range(ctx context.Context, q revision.Query) (revision.Page, error) {
	if err := ctx.Err(); err != nil {
		return revision.Page{}, err
	}
	l.mu.RLock()
	page, at, counted, err := l.find(q)
	l.mu.RUnlock()
	rest := page.Count > int64(len(page.KVs)) && !q.CountOnly
	if err != nil || !counted && !rest {
		return page, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if rest {
		l.counts.SetRest(q.Span, at, &page)
	}
	if counted && at == l.current() {
		l.counts.Set(q.Span, page.Count)
	}
	return page, nil
}

// find answers a query for what was at a revision, and says whether it counted the keys of a span. The
// caller holds the lock.
func (l *log) find(q revision.Query) (page revision.Page, at int64, counted bool, err error) {
	page.Revision = l.current()
	at = page.Revision
	switch {
	case l.closed:
		return page, at, false, revision.ErrClosed
	case q.Revision > page.Revision:
		return page, at, false, revision.ErrFuture
	case q.Revision > 0 && q.Revision < l.compacted:
		return page, at, false, revision.ErrCompacted
	case q.Revision > 0:
		at = q.Revision
	}
	known := q.Uncounted
	if !known {
		page.Count, known = l.counts.Get(q.Span, at, page.Revision)
	}
	if known && q.CountOnly {
		return page, at, false, nil
	}
	var n int64
	l.scan(q.Span, at, func(v *version) bool {
		n++
		if !q.CountOnly && (q.Limit <= 0 || n <= q.Limit) {
			page.KVs = append(page.KVs, view(v, q.KeysOnly))
		}
		return !known || n < q.Limit || q.Limit <= 0
	})
	if known {
		return page, at, false, nil
	}
	page.Count = n
	return page, at, q.End != "", nil
}

// scan calls f with the keys of a span at a revision, in order, as long as it
// returns true. The caller holds the lock.
func (l *log) scan(span revision.Span, at int64, f func(*version) bool) {
	if span.End == "" {
		if i, ok := l.keys.Get(&item{key: span.Key}); ok {
			if v := i.at(at); v != nil {
				f(v)
			}
		}
		return
	}
	l.keys.AscendGreaterOrEqual(&item{key: span.Key}, func(i *item) bool {
		if !span.Has(i.key) {
			return false
		}
		v := i.at(at)
		return v == nil || f(v)
	})
}

func view(v *version, keysOnly bool) *revision.KeyValue {
	if !keysOnly {
		return &v.KeyValue
	}
	kv := v.KeyValue
	kv.Value = nil
	return &kv
}

// Changes implements revision.Log.
func (l *log) Changes(ctx context.Context, s revision.Span, after int64) (events []*revision.Event, through int64, err error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	switch {
	case l.closed:
		return nil, 0, revision.ErrClosed
	case after+1 < l.compacted:
		return nil, 0, revision.ErrCompacted
	case after >= l.current():
		return nil, after, nil
	}
	through = max(after, l.dropped) // of the first revision, which an empty log has, there is no event
	size := 0
	for _, e := range l.events[max(after-l.dropped, 0):] {
		through = e.KV.Mod
		if !s.Has(e.KV.Key) {
			continue
		}
		events = append(events, e.After(l.compacted))
		if size += e.Size(); size >= changesLimit {
			break
		}
	}
	return events, through, nil
}

// Current implements revision.Log.
func (l *log) Current(context.Context) (current, compacted int64, err error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return 0, 0, revision.ErrClosed
	}
	return l.current(), l.compacted, nil
}

// Expiring implements revision.Log: an empty log has none.
func (*log) Expiring(context.Context) ([]*revision.KeyValue, error) { return nil, nil }

// Size implements revision.Log.
func (l *log) Size(context.Context) (int64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.live + l.history, nil
}

// History implements revision.Log.
func (l *log) History() (bytes int64, dropped time.Time) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.history, l.droppedAt
}

// Close implements revision.Log.
func (l *log) Close(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.keys.Clear(false)
	l.events = nil
	return nil
}
