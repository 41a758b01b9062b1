package sqlite

import "github.com/sailplane-dev/sailplane/pkg/internal/revision"

// recentBytes is how much of the latest writes and reads is kept in memory.
const recentBytes = 16 << 20

// latest is the newest row of a key.
type latest struct {
	kv  *revision.KeyValue // nil: it is the mark of a deletion
	row int64              // its id; 0: the key has none
}

// latestOf returns the row of an event. It copies the key value: the event's own
// would keep the event in memory, the one before it, and so all earlier ones.
func latestOf(e *revision.Event) latest {
	if e.Delete {
		return latest{row: e.KV.Mod}
	}
	kv := e.KV
	return latest{kv: &kv, row: kv.Mod}
}

// recent knows the newest row of some keys. The file belongs to this process, so
// an entry is true until its key is written again. There are two generations:
// when the younger one has half of the bytes, the older one is dropped.
type recent struct {
	young, old map[string]latest
	bytes      int // of the younger one
}

func newRecent() recent { return recent{young: map[string]latest{}} }

func (r *recent) get(key string) (latest, bool) {
	l, ok := r.young[key]
	if !ok {
		l, ok = r.old[key]
	}
	return l, ok
}

// put keeps the newest row of a key.
func (r *recent) put(key string, l latest) {
	before := r.young[key]
	r.bytes += l.kv.Size() - before.kv.Size() + len(key)
	r.young[key] = l
	if r.bytes > recentBytes/2 {
		r.old, r.young, r.bytes = r.young, map[string]latest{}, 0
	}
}
