package sqllog

import (
	"slices"
	"strings"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
)

// compactRow is where kine keeps the revision of the last compaction.
const compactRow = "compact_rev_key"

// isObject tells whether the row is a change of a key. kine fills an unused revision with a
// row "gap-NUMBER".
func (r *Row) isObject() bool {
	isGap := r.Deleted && r.PrevRevision == 0 && strings.HasPrefix(r.Name, "gap-")
	return r.Name != compactRow && !isGap
}

// keyValue returns the state of the key from this row on; nil if it was deleted.
func (r *Row) keyValue() *revision.KeyValue {
	if r.ID == 0 || r.Deleted {
		return nil
	}
	kv := &revision.KeyValue{Key: r.Name, Value: r.Value, Create: r.CreateRevision, Mod: r.ID, Expires: r.Expires}
	if r.Created {
		kv.Create = r.ID
	}
	return kv
}

// event returns the change that a row stands for.
func event(r *Row, previous *revision.KeyValue) *revision.Event {
	if r.Deleted {
		return &revision.Event{Delete: true, KV: revision.KeyValue{Key: r.Name, Mod: r.ID}, Previous: previous}
	}
	return &revision.Event{KV: *r.keyValue(), Previous: previous}
}

// rowWeight is how many bytes a row takes beside its name and value.
const rowWeight = 64

// historyOf returns how many bytes of history an event makes: what it replaces, and the mark of
// a deletion.
func historyOf(e *revision.Event) (n int64) {
	if e.Previous != nil {
		n = rowWeight + int64(len(e.KV.Key)+len(e.Previous.Value))
	}
	if e.Delete {
		n += rowWeight + int64(len(e.KV.Key))
	}
	return n
}

// Lease is how many seconds a row lives on, as kine has it in a column; 0: it does not expire.
func (r *Row) Lease() int32 {
	if r.Expires == 0 {
		return 0
	}
	return int32(max(1, time.Until(time.UnixMilli(r.Expires)).Seconds()))
}

// lastName sorts after every key.
const lastName = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"

// Bounds are the first name of a span, and the one that it ends before.
func Bounds(s revision.Span) (first, end []byte) {
	first = []byte(s.Key)
	switch s.End {
	case "":
		return first, append(slices.Clone(first), 0)
	case revision.NoEnd:
		return first, []byte(lastName)
	}
	return first, []byte(s.End)
}
