package revision

// recentBytes is how much of the latest writes and reads is kept in memory.
const recentBytes = 16 << 20

// Latest is the newest row of a key.
type Latest struct {
	KV  *KeyValue // nil: it is the mark of a deletion
	Row int64     // its revision; 0: the key has none
}

// LatestOf returns the row of an event. It copies the key value: the event's own
// would keep the event in memory, the one before it, and so all earlier ones.
func LatestOf(e *Event) Latest {
	if e.Delete {
		return Latest{Row: e.KV.Mod}
	}
	kv := e.KV
	return Latest{KV: &kv, Row: kv.Mod}
}

// Recent knows the newest row of some keys, as of the last event that it was given. There are
// two generations: when the younger one has half of the bytes, the older one is dropped. The
// caller holds a lock. The zero value is ready.
type Recent struct {
	young, old map[string]Latest
	bytes      int // of the younger one
}

// Get returns the newest row of a key, if it is known.
func (r *Recent) Get(key string) (Latest, bool) {
	l, ok := r.young[key]
	if !ok {
		l, ok = r.old[key]
	}
	return l, ok
}

// Put keeps the newest row of a key.
func (r *Recent) Put(key string, l Latest) {
	if r.young == nil {
		r.young = map[string]Latest{}
	}
	before := r.young[key]
	r.bytes += l.KV.Size() - before.KV.Size() + len(key)
	r.young[key] = l
	if r.bytes > recentBytes/2 {
		r.old, r.young, r.bytes = r.young, map[string]Latest{}, 0
	}
}
