package memorylog

import (
	"context"
	"slices"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
)

// Compact implements revision.Log.
func (l *log) Compact(ctx context.Context, at int64) error {
	l.compacting.Lock()
	defer l.compacting.Unlock()
	l.mu.Lock()
	switch {
	case l.closed:
		l.mu.Unlock()
		return revision.ErrClosed
	case at > l.current():
		l.mu.Unlock()
		return revision.ErrFuture
	case at <= l.asked:
		l.mu.Unlock()
		return revision.ErrCompacted
	}
	l.asked = at
	l.compacted = max(l.compacted, at)
	l.mu.Unlock()
	for l.drop(at, 0) {
		if err := ctx.Err(); err != nil {
			return err // the next compaction drops the rest
		}
	}
	return nil
}

// trim drops the oldest history until the rest fits, and a tenth more, so that
// this is not done for each write.
func (l *log) trim() {
	l.mu.RLock()
	at := l.current()
	l.mu.RUnlock()
	for l.drop(at, l.limit-l.limit/10) {
	}
}

// drop drops the next revisions of history before at while more than keep bytes
// are left. It returns whether there are more to drop.
func (l *log) drop(at, keep int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for n < compactStep && n < len(l.events) && l.events[n].KV.Mod < at && (keep == 0 || l.history > keep) {
		l.forget(l.events[n])
		n++
	}
	if n == 0 {
		return false
	}
	l.dropped, l.droppedAt = l.events[n-1].KV.Mod, time.Now()
	l.compacted = max(l.compacted, l.dropped+1)
	clear(l.events[:n])
	l.events = l.events[n:]
	if cap(l.events) > 2*len(l.events)+compactStep {
		l.events = slices.Clone(l.events)
	}
	return n == compactStep && len(l.events) > 0
}

// forget drops the history that an event made: the version before it, and the
// mark of a deletion.
func (l *log) forget(e *revision.Event) {
	l.history -= eventSize
	i, ok := l.keys.Get(&item{key: e.KV.Key})
	if !ok {
		return
	}
	n := 0
	for n < len(i.versions) && (i.versions[n].Mod < e.KV.Mod || i.versions[n].Mod == e.KV.Mod && e.Delete) {
		l.history -= int64(i.versions[n].Size())
		n++
	}
	if n == len(i.versions) {
		l.keys.Delete(i)
		return
	}
	// In place: readers hold the lock while they look at versions.
	i.versions = slices.Delete(i.versions, 0, n)
}
