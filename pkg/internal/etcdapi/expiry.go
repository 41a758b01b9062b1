package etcdapi

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/google/btree"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
)

// expiry deletes keys when they expire.
type expiry struct {
	wake chan struct{}
	lost chan struct{} // changes were not told: the log has to be asked

	mu    sync.Mutex
	keys  map[string]expiringKey
	queue *btree.BTreeG[expiringKey] // the same, the next one first
}

// expiringKey is a key that expires, and the revision that set its expiry.
type expiringKey struct {
	key          string
	expires, mod int64
}

func newExpiry() *expiry {
	sooner := func(a, b expiringKey) bool {
		return cmp.Or(cmp.Compare(a.expires, b.expires), cmp.Compare(a.key, b.key)) < 0
	}
	return &expiry{
		wake: make(chan struct{}, 1), lost: make(chan struct{}, 1),
		keys: map[string]expiringKey{}, queue: btree.NewG(32, sooner),
	}
}

// begin takes in all keys that expire.
func (x *expiry) begin(expiring []*revision.KeyValue) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, kv := range expiring {
		x.note(kv)
	}
}

// anew begins again, after changes were not told.
func (x *expiry) anew(ctx context.Context, log revision.Log) {
	x.mu.Lock()
	x.keys = map[string]expiringKey{}
	x.queue.Clear(false)
	x.mu.Unlock()
	expiring, err := log.Expiring(ctx) // what is told meanwhile is newer
	switch {
	case err == nil:
		x.begin(expiring)
	case ctx.Err() == nil:
		klog.FromContext(ctx).Error(err, "Failed to read the keys that expire, will try again")
		time.AfterFunc(readRetry, func() { signal.Wake(x.lost) })
	}
}

// follow takes in events.
func (x *expiry) follow(events []*revision.Event) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range events {
		x.note(&e.KV)
	}
}

// note takes in the newest state of a key. The caller holds the lock.
func (x *expiry) note(kv *revision.KeyValue) {
	if known, ok := x.keys[kv.Key]; ok {
		if kv.Mod < known.mod {
			return
		}
		x.forget(known)
	}
	if kv.Expires == 0 {
		return
	}
	e := expiringKey{key: kv.Key, expires: kv.Expires, mod: kv.Mod}
	x.keys[kv.Key] = e
	x.queue.ReplaceOrInsert(e)
	signal.Wake(x.wake)
}

func (x *expiry) forget(e expiringKey) {
	x.queue.Delete(e)
	delete(x.keys, e.key)
}

// due returns deletions of the keys that have expired, up to the changes of one
// Append, and how long it is until the next one expires.
func (x *expiry) due(now time.Time) (changes []revision.Change, wait time.Duration) {
	const long = time.Hour
	x.mu.Lock()
	defer x.mu.Unlock()
	for first, ok := x.queue.Min(); ok && len(changes) < revision.MaxChanges; first, ok = x.queue.Min() {
		if left := time.UnixMilli(first.expires).Sub(now); left > 0 {
			return changes, min(left, long)
		}
		changes = append(changes, revision.Change{Kind: revision.Delete, Key: first.key, Expect: first.mod})
		x.forget(first)
	}
	if x.queue.Len() > 0 {
		return changes, 0
	}
	return changes, long
}

// again puts back keys that could not be deleted.
func (x *expiry) again(changes []revision.Change, expires int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range changes {
		if _, ok := x.keys[c.Key]; !ok {
			x.note(&revision.KeyValue{Key: c.Key, Mod: c.Expect, Expires: expires})
		}
	}
}

// run deletes expired keys until the context ends.
func (x *expiry) run(ctx context.Context, log revision.Log) {
	for {
		changes, wait := x.due(time.Now())
		for _, c := range changes {
			// One by one: a key that was written again must not hold up the others. Its last
			// write has an expiry of its own, or none.
			if _, err := log.Append(ctx, []revision.Change{c}); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Failed to delete an expired key, will try again", "key", c.Key)
				x.again([]revision.Change{c}, time.Now().Add(readRetry).UnixMilli())
			}
		}
		if len(changes) > 0 {
			wait = 0
		}
		select {
		case <-time.After(wait):
		case <-x.wake:
		case <-x.lost:
			x.anew(ctx, log)
		case <-ctx.Done():
			return
		}
	}
}
