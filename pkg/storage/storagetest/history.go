package storagetest

import (
	"fmt"
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// history is the events below a prefix, in the order of a watch.
type history []*clientv3.Event

// record watches the prefix from a revision on until it has n events.
func (h *harness) record(t testing.TB, prefix string, from int64, n int) history {
	t.Helper()
	w := h.watch(t, prefix, from)
	defer w.cancel()
	return w.events(t, n)
}

// observation is what one read saw: the revisions of keys at the revision it names.
type observation struct {
	what     string
	revision int64
	// key is the one key that was read. Empty: all.
	key   string
	found map[string]int64 // key to revision
}

// check compares reads with the history, which has every event: a read sees
// exactly the newest state at the revision it names.
func (h history) check(t testing.TB, before map[string]int64, sights []observation) {
	t.Helper()
	slices.SortFunc(sights, func(a, b observation) int { return int(a.revision - b.revision) })
	now, next := before, 0
	for _, s := range sights {
		for ; next < len(h) && h[next].Kv.ModRevision <= s.revision; next++ {
			if key := string(h[next].Kv.Key); h[next].Type == clientv3.EventTypeDelete {
				delete(now, key)
			} else {
				now[key] = h[next].Kv.ModRevision
			}
		}
		if wrong := s.differs(now); wrong != "" {
			t.Errorf("%s at revision %d: %s", s.what, s.revision, wrong)
			return
		}
	}
}

// differs says where a read differs from the keys that existed.
func (s observation) differs(now map[string]int64) string {
	if s.key != "" {
		if s.found[s.key] != now[s.key] {
			return fmt.Sprintf("%s has revision %d, but had %d then", s.key, s.found[s.key], now[s.key])
		}
		return ""
	}
	for key, revision := range now {
		if s.found[key] != revision {
			return fmt.Sprintf("%s has revision %d, but had %d then", key, s.found[key], revision)
		}
	}
	if len(s.found) != len(now) {
		return fmt.Sprintf("%d keys, but there were %d then", len(s.found), len(now))
	}
	return ""
}
