// Package revision is the contract between a log of revisions and the etcd API
// that is served from it ([pkg/internal/etcdapi]).
//
// A log holds keys and values. Every change of a key has a revision of its own:
// 1, 2, 3 and so on, without gaps, in the order in which the changes became
// visible. The log answers for any revision that was not compacted, and tells
// one follower about every change, in order and once.
package revision

import (
	"context"
	"errors"
	"time"
)

// MaxChanges is how many changes one Append may have: etcd's limit for the
// operations of a transaction (--max-txn-ops).
const MaxChanges = 128

// Skipped is how far above revisions that are lost others go on: more than a server writes before it
// is noticed.
const Skipped = 1 << 30

// AnyRevision expects nothing of a key: it may exist or not.
const AnyRevision int64 = -1

var (
	// ErrCompacted says that the history of a revision is gone.
	ErrCompacted = errors.New("the revision has been compacted")
	// ErrFuture says that the revision does not exist yet.
	ErrFuture = errors.New("the revision is in the future")
	// ErrClosed says that the log was closed, or was never open.
	ErrClosed = errors.New("the storage is stopping")
)

// KeyValue is a key at a revision. Values are shared: nobody may change one.
type KeyValue struct {
	Key   string
	Value []byte
	// Create is the revision that made the key, Mod the one that wrote Value.
	Create, Mod int64
	// Expires is when the key expires, in milliseconds since 1970. 0: never.
	Expires int64
}

// Size is roughly what the key value takes in memory, in bytes.
func (kv *KeyValue) Size() int {
	const overhead = 192
	if kv == nil {
		return 0
	}
	return len(kv.Key) + len(kv.Value) + overhead
}

// Kind is what a change does.
type Kind byte

const (
	// Put writes a value.
	Put Kind = iota
	// Delete removes a key. Deleting a key that does not exist makes no revision.
	Delete
	// Check writes nothing: the other changes depend on the key.
	Check
)

// Change is one step of an Append.
type Change struct {
	Kind    Kind
	Key     string
	Value   []byte
	Expires int64 // as in KeyValue
	// Expect is the revision (KeyValue.Mod) that the key must have: 0 where it
	// must not exist, AnyRevision where it does not matter.
	Expect int64
}

// Result is the outcome of an Append.
type Result struct {
	// Revision is the newest revision at the decision: that of the last change, if any
	// was written.
	Revision int64
	// Refused is the index of the first change whose expectation did not hold, or -1.
	// If one did not, nothing was written.
	Refused int
	// Before is each key's value before; nil where it did not exist. After a refusal
	// it is complete up to Refused.
	Before []*KeyValue
}

// Event is a change that happened.
type Event struct {
	// KV is the key after the change; of a deletion it has Key and Mod only.
	KV     KeyValue
	Delete bool
	// Previous is the key before the change; nil where it is new.
	Previous *KeyValue
}

// After returns the event as seen after a compaction: as in etcd, the value before
// a change at that revision is history.
func (e *Event) After(compacted int64) *Event {
	if e.Previous == nil || e.KV.Mod > compacted {
		return e
	}
	return &Event{KV: e.KV, Delete: e.Delete}
}

// Size is roughly what the event takes in memory, in bytes.
func (e *Event) Size() int { return e.KV.Size() + e.Previous.Size() }

// Span is a range of keys: from Key on, up to but without End.
type Span struct {
	Key string
	// End is empty for Key alone, and [NoEnd] for all keys from Key on.
	End string
}

// NoEnd is the end of a span that goes on to the last key, as in etcd's API.
const NoEnd = "\x00"

// Has tells whether the span has the key.
func (s Span) Has(key string) bool {
	if s.End == "" {
		return key == s.Key
	}
	return key >= s.Key && (s.End == NoEnd || key < s.End)
}

// Query asks for keys.
type Query struct {
	Span
	// Revision is the revision to read at. 0: the newest.
	Revision int64
	// Limit is the largest number of keys. 0: all.
	Limit int64
	// KeysOnly leaves the values out, CountOnly the keys as well.
	KeysOnly, CountOnly bool
	// Uncounted leaves the count out: a caller that reads page after page counts by
	// itself.
	Uncounted bool
}

// Page answers a query.
type Page struct {
	// Revision is the newest one that the query could see. The page was read at this
	// revision, unless the query asked for an older one.
	Revision int64
	KVs      []*KeyValue // in the order of their bytes
	// Count is how many keys the span has, whatever the limit. Uncounted: nothing.
	Count int64
}

// Log is a history of changes. All methods may be called at the same time. Reads
// see every change whose Append has returned, and no Append in part.
type Log interface {
	// Append writes all changes or none. After an error other than the context's own
	// it is unknown whether it did. Each change has another key.
	Append(ctx context.Context, changes []Change) (Result, error)
	// Range answers a query. Errors: ErrCompacted, ErrFuture.
	Range(ctx context.Context, q Query) (Page, error)
	// Changes returns the events of the span after a revision, in order, and the
	// revision up to which they are complete: a later one than asked for, if there is
	// one. It may return only a few megabytes at a time. Errors: ErrCompacted.
	Changes(ctx context.Context, s Span, after int64) (events []*Event, through int64, err error)
	// Compact drops what no read at the revision or later needs. Errors: ErrCompacted
	// if the revision was compacted before, ErrFuture.
	Compact(ctx context.Context, revision int64) error
	// Current returns the newest revision, and that of the last compaction.
	Current(ctx context.Context) (current, compacted int64, err error)
	// Expiring returns the keys that expire. It may return more, with revisions that
	// the keys no longer have.
	Expiring(ctx context.Context) ([]*KeyValue, error)
	// Size returns what the log takes on disk, or in memory, in bytes.
	Size(ctx context.Context) (int64, error)
	// History returns how many bytes of history there are, and when some was last
	// dropped, or else when the log was opened.
	History() (bytes int64, dropped time.Time)
	// Close ends all work and releases every file.
	Close(ctx context.Context) error
}

// Follower gets the changes after one revision up to another, in order. Each call begins where the
// one before ended, unless the log has lost, or no longer has, what was between: then who followed
// has to read it, and is refused. It must return soon and may not call the log.
type Follower func(after int64, events []*Event, through int64)

// Shrinking is a Log that takes more room than it needs, and gives the rest back when it is asked to.
type Shrinking interface {
	// Shrink may keep other calls waiting until it returns.
	Shrink(ctx context.Context) error
}
