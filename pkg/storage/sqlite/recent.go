package sqlite

import "github.com/sailplane-dev/sailplane/pkg/internal/revision"

// recentBytes is how much of what was written or read last is kept in memory.
const recentBytes = 16 << 20

// latest is the newest row of a key.
type latest struct {
	kv  *revision.KeyValue // nil: it is the mark of a deletion
	row int64              // its id; 0: the key has none
}

// recent knows the newest row of some keys. The file belongs to this process, so
// what is here is true until it is written again. There are two generations: when
// the younger one has half of the bytes, the older one goes.
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
