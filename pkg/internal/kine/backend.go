package kine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/k3s-io/kine/pkg/server"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// beforeCompaction is how long a compaction waits for watches that are behind.
const beforeCompaction = 2 * time.Second

// guarded is a backend that keeps to etcd where kine's drivers do not: values
// are never shared between callers, revisions never go backwards, a read whose
// context ended is an error and not a shorter list, and a write the database
// refused is an error and not a conflict.
type guarded struct {
	server.Backend
	compact   func(ctx context.Context, revision, current int64) error
	compacted func(revision int64)
	// reach waits until the watches have what happened up to a revision.
	reach func(ctx context.Context, revision int64)
	// acked is the highest revision of a write that was acknowledged.
	acked atomic.Int64
}

func (g *guarded) acknowledge(revision int64) {
	for {
		old := g.acked.Load()
		if revision <= old || g.acked.CompareAndSwap(old, revision) {
			return
		}
	}
}

// CurrentRevision is never lower than that of an acknowledged write: the SQL
// drivers lose one of two that end at the same time.
func (g *guarded) CurrentRevision(ctx context.Context) (int64, error) {
	revision, err := g.Backend.CurrentRevision(ctx)
	return max(revision, g.acked.Load()), err
}

// Get implements server.Backend.
func (g *guarded) Get(ctx context.Context, key string, revision int64, keysOnly bool) (int64, *server.KeyValue, error) {
	before, err := g.CurrentRevision(ctx)
	if err != nil {
		return 0, nil, err
	}
	current, kv, err := g.Backend.Get(ctx, key, revision, keysOnly)
	if errors.Is(err, server.ErrFutureRev) && revision <= before {
		err = g.compactedAt(ctx, revision)
	}
	if err = readError(ctx, err); err != nil {
		return current, nil, err
	}
	return seen(before, current, kv != nil), own(kv), nil
}

// List implements server.Backend.
//
//nolint:revive // the parameters are server.Backend's
func (g *guarded) List(ctx context.Context, key, end string, limit, revision int64, keysOnly bool) (int64, []*server.KeyValue, error) {
	before, err := g.CurrentRevision(ctx)
	if err != nil {
		return 0, nil, err
	}
	current, kvs, err := g.Backend.List(ctx, key, end, limit, revision, keysOnly)
	if errors.Is(err, server.ErrFutureRev) && revision <= before {
		err = g.compactedAt(ctx, revision)
	}
	if err = readError(ctx, err); err != nil {
		return current, nil, err
	}
	for i, kv := range kvs {
		kvs[i] = own(kv)
	}
	return seen(before, current, len(kvs) > 0), kvs, nil
}

// compactedAt is the error of a read at a revision that found nothing. The SQL
// drivers take that revision for a future one where they lost it (see
// CurrentRevision), and look no further. Their count asks the database.
func (g *guarded) compactedAt(ctx context.Context, revision int64) error {
	_, _, err := g.Backend.Count(ctx, "", "", revision)
	return err
}

// Count implements server.Backend. kine counts what remains behind a page and
// then takes the revision of the count for that of the page. So a count at a
// revision answers with this one: a later one would hide what was written
// between the two.
func (g *guarded) Count(ctx context.Context, key, end string, revision int64) (int64, int64, error) {
	current, n, err := g.Backend.Count(ctx, key, end, revision)
	if revision > 0 {
		current = revision
	}
	return current, n, readError(ctx, err)
}

// Create implements server.Backend.
func (g *guarded) Create(ctx context.Context, key string, value []byte, lease int64) (int64, error) {
	revision, err := g.Backend.Create(ctx, key, value, lease)
	if err == nil {
		g.acknowledge(revision)
	}
	return revision, err
}

// Update implements server.Backend.
func (g *guarded) Update(ctx context.Context, key string, value []byte, revision, lease int64) (int64, *server.KeyValue, bool, error) {
	current, kv, updated, err := g.Backend.Update(ctx, key, value, revision, lease)
	if err == nil && !updated && kv != nil && kv.ModRevision == revision {
		err = refused(ctx, key)
	}
	if err != nil {
		return current, nil, false, err
	}
	if updated {
		g.acknowledge(current)
	}
	return current, own(kv), updated, nil
}

// Delete implements server.Backend. A key that never existed is not deleted.
func (g *guarded) Delete(ctx context.Context, key string, revision int64) (int64, *server.KeyValue, bool, error) {
	current, kv, deleted, err := g.Backend.Delete(ctx, key, revision)
	if err == nil && !deleted && kv != nil && revision != 0 && kv.ModRevision != revision {
		// It may be the mark of another one's deletion, which kine takes for what is there.
		current, kv, err = g.Backend.Get(ctx, key, 0, false)
	}
	if err == nil && !deleted && kv != nil && (revision == 0 || kv.ModRevision == revision) {
		err = refused(ctx, key)
	}
	if err != nil {
		return current, nil, false, err
	}
	if deleted = deleted && kv != nil; deleted {
		g.acknowledge(current)
	}
	return current, own(kv), deleted, nil
}

// Compact implements server.Backend.
func (g *guarded) Compact(ctx context.Context, revision int64) (int64, error) {
	current, err := g.CurrentRevision(ctx)
	if err != nil {
		return 0, err
	}
	if revision > current {
		return current, server.ErrFutureRev
	}
	// What is dropped before it was read, no watch hears of. A revision may have
	// no event of its own, so the wait is bounded.
	soon, cancel := context.WithTimeout(ctx, beforeCompaction)
	g.reach(soon, revision)
	cancel()
	if g.compact != nil {
		err = g.compact(ctx, revision, current)
	} else {
		_, err = g.Backend.Compact(ctx, revision)
	}
	if err != nil {
		return current, err
	}
	g.compacted(revision)
	return current, nil
}

// own returns a copy whose value nobody else holds. The drivers hand out the
// slices they keep.
func own(kv *server.KeyValue) *server.KeyValue {
	if kv == nil {
		return nil
	}
	c := *kv
	c.Value = slices.Clone(kv.Value)
	return &c
}

// seen is the revision of a read that began when before was current. Where it
// found something, that came with its revision. Where it found nothing, the SQL
// drivers ask for the revision afterwards, when a key may have been written
// that was not found: a watch from there on would miss it.
func seen(before, current int64, found bool) int64 {
	if found {
		return max(before, current)
	}
	return before
}

// readError adds what kine drops: a query that was cut short by its context
// looks like one with fewer rows.
func readError(ctx context.Context, err error) error {
	if err == nil && ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	return err
}

// refused is the error of a write that did not happen although its comparison
// held. kine drops the cause and calls it a conflict, over which API servers
// would retry until their request ends.
func refused(ctx context.Context, key string) error {
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	return status.Error(codes.Unavailable, fmt.Sprintf(
		"the database refused to write %s; it may be full, read-only or locked", key))
}
