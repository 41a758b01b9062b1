package feed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/klog/v2"
)

// Feed mirrors the metadata of the objects below a prefix of a storage.
type Feed struct {
	prefix       string
	client       *clientv3.Client
	transformers value.ResourceTransformers
	types        map[stem]*Type
	sealed       sealed
	synced       chan struct{}

	mu       sync.RWMutex
	index    index
	history  history
	revision int64
	moved    chan struct{} // closed when the revision moves; nil while nobody waits
	asked    time.Time     // when the storage was last asked for an answer that is not here yet
	changed  []*func(before, after *Object)
}

// New makes a feed of what is stored below the prefix, "/registry", and, where
// there are transformers, transformed by them. [Feed.Run] owns the client and
// closes it.
func New(client *clientv3.Client, prefix string, transformers value.ResourceTransformers) *Feed {
	return &Feed{
		prefix:       strings.TrimSuffix(prefix, "/") + "/",
		client:       client,
		transformers: transformers,
		types:        map[stem]*Type{},
		sealed:       sealed{values: map[string]*mvccpb.KeyValue{}, counts: map[schema.GroupResource]int{}},
		synced:       make(chan struct{}),
		index:        newIndex(),
	}
}

// OnChange has call called for every write until stop, in order: before is nil
// for an object that is new, after for one that is gone. Both are set and their
// UIDs differ when an object was replaced while the feed was away. call must
// return soon: it runs where the feed is read, after its indexes changed.
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

// pageSize is how many objects are read at once to begin with, and retry how
// long the feed waits before it reads again what it could not.
const (
	pageSize = 1000
	retry    = time.Second
)

// Run follows the storage until the context ends. After a gap, because the
// history was compacted or the storage was away, it reads everything again
// and reports the difference.
func (f *Feed) Run(ctx context.Context) {
	defer f.client.Close()
	log := klog.FromContext(ctx)
	for {
		err := f.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		log.Info("The feed of objects begins again", "cause", err)
		select {
		case <-time.After(retry):
		case <-ctx.Done():
			return
		}
	}
}

func (f *Feed) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	revision, err := f.read(ctx)
	if err != nil {
		return err
	}
	f.advance(revision, true)
	select {
	case <-f.synced:
	default:
		close(f.synced)
	}
	watch := f.client.Watch(watchContext(ctx), f.prefix, clientv3.WithPrefix(), clientv3.WithRev(revision+1))
	var again <-chan time.Time
	for {
		if again == nil && len(f.sealed.values) > 0 {
			again = time.After(retry)
		}
		select {
		case r, ok := <-watch:
			if !ok {
				return errors.New("the watch ended")
			}
			if err := f.take(ctx, r); err != nil {
				return err
			}
		case <-again:
			again = nil
			f.unseal(ctx)
		}
	}
}

// take takes in what the watch brought.
func (f *Feed) take(ctx context.Context, r clientv3.WatchResponse) error {
	if err := r.Err(); err != nil {
		return err
	}
	for _, e := range r.Events {
		f.apply(ctx, e)
	}
	if n := len(r.Events); n > 0 {
		// The header may be ahead of events that etcd did not send yet.
		f.advance(r.Events[n-1].Kv.ModRevision, false)
		return nil
	}
	f.advance(r.Header.Revision, true)
	return nil
}

// watchContext gives the feed's watch a stream of its own, so that progress is
// asked of it and of no other.
func watchContext(ctx context.Context) context.Context { return clientv3.WithRequireLeader(ctx) }

// read reads every object and drops those that are gone.
func (f *Feed) read(ctx context.Context) (revision int64, err error) {
	var seen map[string]bool // which of those known before are still there
	if f.Len() > 0 {
		seen = map[string]bool{}
	}
	from, end := f.prefix, clientv3.GetPrefixRangeEnd(f.prefix)
	for {
		r, err := f.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(pageSize), clientv3.WithRev(revision))
		if err != nil {
			return 0, fmt.Errorf("read objects: %w", err)
		}
		if revision == 0 {
			revision = r.Header.Revision
		}
		for _, kv := range r.Kvs {
			if seen != nil {
				seen[string(kv.Key)] = true
			}
			f.put(ctx, kv)
		}
		if !r.More || len(r.Kvs) == 0 {
			break
		}
		from = string(r.Kvs[len(r.Kvs)-1].Key) + "\x00"
	}
	if seen == nil {
		return revision, nil
	}
	var gone []string
	for key := range f.index.objects {
		if !seen[f.prefix+key] {
			gone = append(gone, key)
		}
	}
	for _, key := range gone {
		f.drop(key, revision)
	}
	return revision, nil
}

func (f *Feed) apply(ctx context.Context, e *clientv3.Event) {
	if e.Type == mvccpb.DELETE {
		f.drop(strings.TrimPrefix(string(e.Kv.Key), f.prefix), e.Kv.ModRevision)
		return
	}
	f.put(ctx, e.Kv)
}

// put takes in a stored value. What is no object is left out: the storage may
// hold other things.
func (f *Feed) put(ctx context.Context, kv *mvccpb.KeyValue) {
	key := strings.TrimPrefix(string(kv.Key), f.prefix)
	content, err := f.open(ctx, key, kv)
	if err != nil {
		f.seal(ctx, key, kv, err)
		return
	}
	o, err := f.object(key, content)
	if err != nil {
		f.mu.Lock()
		f.forget(key)
		f.mu.Unlock()
		klog.FromContext(ctx).V(4).Info("A stored value is no object", "key", string(kv.Key), "cause", err)
		return
	}
	o.Revision, o.bytes = kv.ModRevision, int64(len(kv.Key)+len(kv.Value))
	f.replace(key, o, kv.ModRevision, false)
}

// drop takes out what is stored no more, since a revision.
func (f *Feed) drop(key string, revision int64) { f.replace(key, nil, revision, false) }

// replace changes the indexes, after a write with the revision, and tells who wants to
// know. What is not sealed any more is in the indexes from the moment on in which
// Unreadable leaves it out: who asked it takes what the indexes have for all there is.
func (f *Feed) replace(key string, after *Object, revision int64, sealed bool) {
	f.mu.Lock()
	before := f.index.replace(key, after)
	if before != nil && before.Revision < revision {
		f.history.add(revision, before.bytes)
	}
	if !sealed {
		f.forget(key)
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

// advance notes how far the feed is, and whether that answers who asked.
func (f *Feed) advance(revision int64, answer bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.revision = revision
	if answer {
		f.asked = time.Time{}
	}
	if f.moved != nil {
		close(f.moved)
		f.moved = nil
	}
}

// Await returns when everything was read for the first time.
func (f *Feed) Await(ctx context.Context) error {
	select {
	case <-f.synced:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the feed of objects was not read: %w", context.Cause(ctx))
	}
}

// progressEvery is after how long a storage that does not answer is asked
// again how far the watch is, and lagTimeout for how long who asks for the lag waits
// for a watch that is behind.
const (
	progressEvery = 50 * time.Millisecond
	lagTimeout    = 200 * time.Millisecond
)

// CatchUp returns when the feed has seen every write that was acknowledged
// before the call.
func (f *Feed) CatchUp(ctx context.Context) error {
	if err := f.Await(ctx); err != nil {
		return err
	}
	r, err := f.client.Get(ctx, f.prefix, clientv3.WithCountOnly(), clientv3.WithLimit(1))
	if err != nil {
		return fmt.Errorf("read the revision of the storage: %w", err)
	}
	return f.reach(ctx, r.Header.Revision)
}

// Lag is by how many revisions the feed's watch is behind the storage after a while in
// which it had time to catch up.
func (f *Feed) Lag(ctx context.Context) (int64, error) {
	r, err := f.client.Get(ctx, f.prefix, clientv3.WithCountOnly(), clientv3.WithLimit(1))
	if err != nil {
		return 0, fmt.Errorf("read the revision of the storage: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, lagTimeout)
	defer cancel()
	// What it returns is in the lag.
	_ = f.reach(ctx, r.Header.Revision)
	f.mu.RLock()
	defer f.mu.RUnlock()
	return max(0, r.Header.Revision-f.revision), nil
}

// reach returns when the feed is at a revision.
func (f *Feed) reach(ctx context.Context, revision int64) error {
	for {
		moved, ask := f.await(revision)
		if moved == nil {
			return nil
		}
		if ask {
			if err := f.client.RequestProgress(watchContext(ctx)); err != nil {
				return fmt.Errorf("ask how far the watch is: %w", err)
			}
		}
		select {
		case <-moved:
		case <-time.After(progressEvery):
		case <-ctx.Done():
			return fmt.Errorf("the feed of objects has not reached revision %d: %w", revision, context.Cause(ctx))
		}
	}
}

// await returns what is closed when the feed moves, or nil when it reached the
// revision, and whether to ask for an answer. One at a time is asked for,
// however many wait: were each answer to make all of them ask, answers would
// come faster than they are read.
func (f *Feed) await(revision int64) (moved <-chan struct{}, ask bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.revision >= revision {
		return nil, false
	}
	if f.moved == nil {
		f.moved = make(chan struct{})
	}
	if ask = time.Since(f.asked) >= progressEvery; ask {
		f.asked = time.Now()
	}
	return f.moved, ask
}
