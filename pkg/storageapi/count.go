package storageapi

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/internal/etcdserve"
	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
)

// countRetry is the pause after an error before the keys of a tenant are counted again.
const countRetry = time.Second

// usage is what a tenant has in the storage.
type usage struct{ keys, bytes int64 }

// count knows what a tenant has in the storage, as long as it runs: it reads all of it
// once, and then watches. What this server writes at the moment counts as written, so
// that no limit is passed through it. Servers that share a storage may pass a limit by
// what they write at the same time.
type count struct {
	client *clientv3.Client
	root   string

	changed signal.Change

	mu       sync.Mutex
	known    bool
	now      usage
	revision int64 // up to which now is right
	writing  usage // what may be added
	written  []written
}

// written is what was written in a revision, until the count has it.
type written struct {
	revision int64
	growth   usage
}

// run counts until the context ends.
func (c *count) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := c.follow(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("Cannot count the keys of an EtcdStorage; will retry", "root", c.root, "cause", err)
		}
		select {
		case <-time.After(countRetry):
		case <-ctx.Done():
		}
	}
}

// follow counts everything, and then what changes.
func (c *count) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx) // ends the stream and the watch
	defer cancel()
	end := clientv3.GetPrefixRangeEnd(c.root)
	chunks, err := c.client.GetStream(ctx, c.root, clientv3.WithRange(end))
	if err != nil {
		return err
	}
	var all usage
	var revision int64
	for chunk := range chunks {
		if err := chunk.Err(); err != nil {
			return err
		}
		for _, kv := range chunk.Kvs {
			all.keys++
			all.bytes += c.size(kv.Key, kv.Value)
		}
		revision = max(revision, chunk.GetHeader().GetRevision())
	}
	c.set(all, revision)
	watch := c.client.Watch(ctx, c.root, clientv3.WithRange(end), clientv3.WithRev(revision+1), clientv3.WithPrevKV())
	for r := range watch {
		if err := r.Err(); err != nil {
			return err
		}
		c.apply(&r)
	}
	return ctx.Err()
}

// size is what a key takes with its value.
func (c *count) size(key, value []byte) int64 { return int64(len(key) - len(c.root) + len(value)) }

func (c *count) set(all usage, revision int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known, c.now = true, all
	c.reach(revision)
	c.changed.Announce()
}

func (c *count) apply(r *clientv3.WatchResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range r.Events {
		if e.PrevKv != nil {
			c.now.keys--
			c.now.bytes -= c.size(e.PrevKv.Key, e.PrevKv.Value)
		}
		if e.Type == clientv3.EventTypePut {
			c.now.keys++
			c.now.bytes += c.size(e.Kv.Key, e.Kv.Value)
		}
	}
	c.reach(r.Header.GetRevision())
}

// reach takes out what was written up to a revision: it is counted. The caller holds the lock.
func (c *count) reach(revision int64) {
	c.revision = max(c.revision, revision)
	left := c.written[:0]
	for _, w := range c.written {
		if w.revision > c.revision {
			left = append(left, w)
			continue
		}
		c.writing.keys -= w.growth.keys
		c.writing.bytes -= w.growth.bytes
	}
	c.written = left
}

// get returns what the tenant has, once that is known.
func (c *count) get(ctx context.Context) (usage, error) {
	for {
		c.mu.Lock()
		next := c.changed.Next()
		known, now := c.known, c.now
		c.mu.Unlock()
		if known {
			return now, nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return usage{}, ctx.Err()
		}
	}
}

// last is what the tenant has as far as it is known by now.
func (c *count) last() (u usage, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now, c.known
}

// reserve makes room for a write, and refuses it if there is none. What is updated may be
// more than a limit once: its next update is refused.
func (c *count) reserve(ctx context.Context, g etcdserve.Growth, l Limits) (settle func(revision int64), err error) {
	if _, err := c.get(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	grown := usage{c.now.keys + c.writing.keys + g.Keys, c.now.bytes + c.writing.bytes + g.Bytes}
	if g.Keys == 0 { // by how much a key grows that is there already is not known
		grown.bytes -= g.Bytes
	}
	if grown.keys > l.Keys || grown.bytes > l.Bytes {
		return nil, over("room", rpctypes.ErrGRPCNoSpace)
	}
	c.writing.keys += g.Keys
	c.writing.bytes += g.Bytes
	return func(revision int64) {
		c.mu.Lock()
		defer c.mu.Unlock()
		// What was not written, or is unknown, is counted when it comes.
		c.written = append(c.written, written{revision, usage{g.Keys, g.Bytes}})
		c.reach(c.revision)
	}, nil
}
