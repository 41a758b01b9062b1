package etcdapi

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
)

// expiry deletes keys when their time is over.
type expiry struct {
	wake chan struct{}

	mu    sync.Mutex
	keys  map[string]*ending
	queue endings
}

// ending is a key that has an end, and the revision that said so.
type ending struct {
	key           string
	expires, mod  int64
	indexInEnding int
}

func newExpiry() *expiry { return &expiry{wake: make(chan struct{}, 1), keys: map[string]*ending{}} }

// follow takes in what happened.
func (x *expiry) follow(events []*revision.Event) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range events {
		x.note(&e.KV)
	}
}

// note takes in the newest state of a key. The caller holds the lock.
func (x *expiry) note(kv *revision.KeyValue) {
	known := x.keys[kv.Key]
	switch {
	case known != nil && kv.Mod < known.mod:
	case kv.Expires == 0 && known != nil:
		heap.Remove(&x.queue, known.indexInEnding)
		delete(x.keys, kv.Key)
	case kv.Expires == 0:
	case known != nil:
		known.expires, known.mod = kv.Expires, kv.Mod
		heap.Fix(&x.queue, known.indexInEnding)
		x.signal()
	default:
		e := &ending{key: kv.Key, expires: kv.Expires, mod: kv.Mod}
		x.keys[kv.Key] = e
		heap.Push(&x.queue, e)
		x.signal()
	}
}

func (x *expiry) signal() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// due returns what has ended, up to the changes of one Append, and how long it is
// until the next one ends.
func (x *expiry) due(now time.Time) (changes []revision.Change, wait time.Duration) {
	const long = time.Hour
	x.mu.Lock()
	defer x.mu.Unlock()
	for len(x.queue) > 0 && len(changes) < revision.MaxChanges {
		first := x.queue[0]
		if left := time.UnixMilli(first.expires).Sub(now); left > 0 {
			return changes, min(left, long)
		}
		changes = append(changes, revision.Change{Kind: revision.Delete, Key: first.key, Expect: first.mod})
		heap.Pop(&x.queue)
		delete(x.keys, first.key)
	}
	if len(x.queue) > 0 {
		return changes, 0
	}
	return changes, long
}

// again puts back what could not be deleted.
func (x *expiry) again(changes []revision.Change, expires int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range changes {
		if x.keys[c.Key] == nil {
			x.note(&revision.KeyValue{Key: c.Key, Mod: c.Expect, Expires: expires})
		}
	}
}

// run deletes what ends until the context does.
func (x *expiry) run(ctx context.Context, log revision.Log) {
	for {
		changes, wait := x.due(time.Now())
		for _, c := range changes {
			// Alone: that one was written again is no reason to keep the others.
			// What was written again has an end of its own, or none.
			if _, err := log.Append(ctx, []revision.Change{c}); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "A key whose time is over was not deleted; it is tried again", "key", c.Key)
				x.again([]revision.Change{c}, time.Now().Add(readRetry).UnixMilli())
			}
		}
		if len(changes) > 0 {
			wait = min(wait, 0)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-x.wake:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// endings is a heap.Interface, the next one first.
type endings []*ending

func (e endings) Len() int           { return len(e) }
func (e endings) Less(i, j int) bool { return e[i].expires < e[j].expires }
func (e endings) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].indexInEnding, e[j].indexInEnding = i, j
}

// Push implements heap.Interface.
func (e *endings) Push(x any) {
	one, _ := x.(*ending)
	one.indexInEnding = len(*e)
	*e = append(*e, one)
}

// Pop implements heap.Interface.
func (e *endings) Pop() any {
	old := *e
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*e = old[:len(old)-1]
	return last
}
