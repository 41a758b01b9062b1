package sqllog

import (
	"context"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
)

// sweepRows is how many rows a transaction drops at most: what it deletes, replicas and vacuum
// have to follow.
const sweepRows = 1000

// sweepPause is how long a sweep rests between two steps at least: another server may be at it.
const sweepPause = 10 * time.Millisecond

// keeper drops history.
type keeper struct {
	log   *log
	limit int64 // of history, in bytes
	due   chan struct{}
}

// look has the keeper run where there is too much history. The caller holds the lock of the log.
func (k *keeper) look(at Position) {
	if at.History > k.limit {
		signal.Wake(k.due)
	}
}

// run drops history above the limit, and what an interrupted compaction left.
func (k *keeper) run(ctx context.Context) {
	if at, err := k.log.db.Position(ctx); err == nil && at.Compacted > 0 {
		k.report(ctx, k.sweep(ctx, at.Compacted-1), "Could not finish an interrupted compaction")
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.due:
			k.report(ctx, k.trim(ctx), "Could not drop history above its limit; will retry")
		}
	}
}

func (k *keeper) report(ctx context.Context, err error, message string) {
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, message)
	}
}

// Compact implements revision.Log.
func (l *log) Compact(ctx context.Context, at int64) error {
	stands, err := l.db.Position(ctx)
	if err != nil {
		return l.explain(err)
	}
	if at > stands.Current {
		return revision.ErrFuture
	}
	switch later, err := l.db.Compact(ctx, at, true); {
	case err != nil:
		return fmt.Errorf("compact to revision %d: %w", at, l.explain(err))
	case !later:
		return revision.ErrCompacted
	}
	if err := l.keeper.sweep(ctx, at-1); err != nil {
		return fmt.Errorf("compact to revision %d: %w", at, l.explain(err))
	}
	return nil
}

// Shrink implements revision.Shrinking.
func (l *log) Shrink(ctx context.Context) error {
	if err := l.db.Shrink(ctx); err != nil {
		return fmt.Errorf("shrink the tables: %w", l.explain(err))
	}
	return nil
}

// trim drops the oldest history if there is too much, and a tenth more. Servers that do so at
// once share the work.
func (k *keeper) trim(ctx context.Context) error {
	at, err := k.log.db.Position(ctx)
	if err != nil || at.History <= k.limit {
		return err
	}
	for at.History > k.limit-k.limit/10 {
		// What goes is about what the revisions have of it, if they are alike.
		compacted := max(at.Compacted, 1)
		to := compacted + max(1, (at.Current-compacted)*(at.History-k.limit*9/10)/max(at.History, 1)/2)
		if to >= at.Current {
			return nil
		}
		if _, err := k.log.db.Compact(ctx, to+1, false); err != nil {
			return err
		}
		if err := k.sweep(ctx, to); err != nil {
			return err
		}
		if at, err = k.log.db.Position(ctx); err != nil {
			return err
		}
	}
	return nil
}

// sweep drops the history that revisions up to one made, in steps that leave writes as much
// time as they take.
func (k *keeper) sweep(ctx context.Context, to int64) error {
	for {
		begun := time.Now()
		swept, err := k.log.db.Sweep(ctx, to, sweepRows)
		if err != nil {
			return err
		}
		k.log.mu.Lock()
		k.log.dropped = time.Now()
		k.log.mu.Unlock()
		if swept >= to {
			return nil
		}
		select {
		case <-time.After(max(sweepPause, time.Since(begun))):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
