package feed

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/internal/keys"
	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
)

// Feed mirrors the metadata of the objects of one plane.
type Feed struct {
	hub         *Hub
	space       keys.Space
	waiting     queue
	types       map[typeKey]*Type
	undecrypted undecrypted
	synced      chan struct{}

	mu       sync.RWMutex
	index    index
	history  history
	revision int64
	moved    signal.Change // of the revision
	changed  []*func(before, after *Object)
}

func newFeed(h *Hub, space keys.Space) *Feed {
	return &Feed{
		hub: h, space: space,
		waiting:     queue{more: make(chan struct{}, 1)},
		types:       map[typeKey]*Type{},
		undecrypted: undecrypted{values: map[string]*mvccpb.KeyValue{}, counts: map[schema.GroupResource]int{}},
		synced:      make(chan struct{}),
		index:       newIndex(),
	}
}

// OnChange has call called for every write until stop, in order: before is nil for
// an object that is new, after for one that is gone. Both are set and their UIDs
// differ when an object was replaced while the feed was away. call must return
// soon: the goroutine that reads the feed calls it, after the indexes changed.
func (f *Feed) OnChange(call func(before, after *Object)) (stop func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	added := &call
	f.changed = append(slices.Clip(f.changed), added)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.changed = slices.DeleteFunc(slices.Clone(f.changed), func(c *func(before, after *Object)) bool { return c == added })
	}
}

// pageSize is how many objects one request reads.
const pageSize = 1000

// Run follows what the plane stores until the context ends. After a gap it reads
// everything again and reports the difference.
func (f *Feed) Run(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		err := f.follow(ctx)
		if ctx.Err() == nil {
			klog.FromContext(ctx).V(1).Info("Reading the objects of a plane again", "plane", f.space.Plane, "cause", err)
		}
	}, retry)
}

func (f *Feed) follow(ctx context.Context) error {
	if err := f.hub.join(ctx, f); err != nil {
		return err
	}
	defer f.hub.leave(f)
	read, err := f.read(ctx)
	if err != nil {
		return err
	}
	f.advance(read)
	if !signal.Closed(f.synced) {
		close(f.synced)
	}
	var again <-chan time.Time
	for {
		events, revision, err := f.hub.take(f)
		if err != nil {
			return err
		}
		for _, e := range events {
			f.apply(ctx, e, read)
		}
		f.advance(max(read, revision))
		if again == nil && len(f.undecrypted.values) > 0 {
			again = time.After(retry)
		}
		select {
		case <-f.waiting.more:
		case <-again:
			again = nil
			f.decryptAgain(ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// apply takes in a write, unless it was read already.
func (f *Feed) apply(ctx context.Context, e event, read int64) {
	switch {
	case e.kv.ModRevision <= read:
	case e.deleted:
		f.drop(e.place, e.kv.ModRevision)
	default:
		f.put(ctx, e.place, e.kv)
	}
}

// read reads every object and drops those that are gone. It returns the revision
// that it read at.
func (f *Feed) read(ctx context.Context) (revision int64, err error) {
	var seen map[string]bool // the known objects that still exist
	if f.Len() > 0 {
		seen = map[string]bool{}
	}
	take := func(kv *mvccpb.KeyValue) {
		if plane, place := f.space.Place(string(kv.Key)); plane == f.space.Plane && place != "" {
			if seen != nil {
				seen[place] = true
			}
			f.put(ctx, place, kv)
		}
	}
	from, end := f.space.First()
	if f.space.Plane == "" {
		revision, err = f.page(ctx, from, end, 0, take)
	} else {
		revision, err = f.pick(ctx, from, end, take)
	}
	if err != nil || seen == nil {
		return revision, err
	}
	var gone []string
	for place := range f.index.objects {
		if !seen[place] {
			gone = append(gone, place)
		}
	}
	for _, place := range gone {
		f.drop(place, revision)
	}
	return revision, nil
}

// pick reads the plane's objects in a range, resource by resource.
func (f *Feed) pick(ctx context.Context, from, end string, take func(*mvccpb.KeyValue)) (revision int64, err error) {
	for {
		r, err := f.hub.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(1), clientv3.WithRev(revision))
		if err != nil {
			return 0, fmt.Errorf("find objects: %w", err)
		}
		if revision == 0 {
			revision = r.Header.Revision
		}
		if len(r.Kvs) == 0 {
			return revision, nil
		}
		first, last, next := f.space.Next(string(r.Kvs[0].Key))
		if _, err := f.page(ctx, first, last, revision, take); err != nil {
			return 0, err
		}
		from = next
	}
}

// page reads a range in pages, at a revision; 0: now.
func (f *Feed) page(ctx context.Context, from, end string, at int64, take func(*mvccpb.KeyValue)) (revision int64, err error) {
	for revision = at; ; {
		r, err := f.hub.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(pageSize), clientv3.WithRev(revision))
		if err != nil {
			return 0, fmt.Errorf("read objects: %w", err)
		}
		if revision == 0 {
			revision = r.Header.Revision
		}
		for _, kv := range r.Kvs {
			take(kv)
		}
		if !r.More || len(r.Kvs) == 0 {
			return revision, nil
		}
		from = string(r.Kvs[len(r.Kvs)-1].Key) + "\x00"
	}
}

// put takes in a stored value. It leaves out values that are no objects: the
// storage may hold other things.
func (f *Feed) put(ctx context.Context, place string, kv *mvccpb.KeyValue) {
	content, err := f.open(ctx, place, kv)
	if err != nil {
		f.seal(ctx, place, kv, err)
		return
	}
	o, err := f.object(place, content)
	if err != nil {
		f.mu.Lock()
		f.forget(place)
		f.mu.Unlock()
		klog.FromContext(ctx).V(4).Info("A stored value is not an object", "key", string(kv.Key), "cause", err)
		return
	}
	o.Revision, o.bytes = kv.ModRevision, int64(len(kv.Key)+len(kv.Value))
	f.replace(place, o, kv.ModRevision, false)
}

// drop takes out what was deleted at a revision.
func (f *Feed) drop(place string, revision int64) { f.replace(place, nil, revision, false) }

// replace changes the indexes, after a write with the revision, and calls the
// OnChange functions. A value enters the indexes and leaves Unreadable at the same
// moment: without an error from Unreadable, callers take the indexes as complete.
func (f *Feed) replace(place string, after *Object, revision int64, undecrypted bool) {
	f.mu.Lock()
	before := f.index.replace(place, after)
	if before != nil && before.Revision < revision {
		f.history.add(revision, before.bytes)
	}
	if !undecrypted {
		f.forget(place)
	}
	changed := f.changed
	f.mu.Unlock()
	if before == nil && after == nil {
		return
	}
	for _, call := range changed {
		(*call)(before, after)
	}
}

// advance notes how far the feed is.
func (f *Feed) advance(revision int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.revision = revision
	f.moved.Announce()
}

// Await returns when the feed has read everything for the first time.
func (f *Feed) Await(ctx context.Context) error {
	select {
	case <-f.synced:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the feed has not read all objects yet: %w", context.Cause(ctx))
	}
}

// CatchUp returns when the feed has seen every write that was acknowledged
// before the call.
func (f *Feed) CatchUp(ctx context.Context) error {
	if err := f.Await(ctx); err != nil {
		return err
	}
	now, err := f.hub.now(ctx)
	if err != nil {
		return err
	}
	if err := f.hub.reach(ctx, now); err != nil {
		return err
	}
	err = f.moved.Await(ctx, func() bool {
		f.mu.RLock()
		defer f.mu.RUnlock()
		if f.revision < now {
			signal.Wake(f.waiting.more) // the hub may not have told it that nothing happened
		}
		return f.revision >= now
	})
	if err != nil {
		return fmt.Errorf("the feed of objects has not reached revision %d: %w", now, err)
	}
	return nil
}

// Replaced is the object that a write replaces: the one with the key in the storage, and the
// revision. If the feed does not have it, it catches up. Nil: a later write has
// replaced it, or the value cannot be read.
func (f *Feed) Replaced(ctx context.Context, key string, revision int64) (*Object, error) {
	if o := f.At(key); o != nil && o.Revision == revision {
		return o, nil
	}
	if err := f.CatchUp(ctx); err != nil {
		return nil, err
	}
	if o := f.At(key); o != nil && o.Revision == revision {
		return o, nil
	}
	return nil, nil
}
