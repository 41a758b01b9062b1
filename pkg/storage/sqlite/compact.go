package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
)

const (
	// stepTime is about how long a step of a compaction may keep writes waiting.
	// A step takes as many rows as that allows, firstStep at the start.
	stepTime  = 2 * time.Millisecond
	firstStep = 32
	maxStep   = 2000
	// vacuumPages is how many pages go back to the file system in a step, and
	// sparePages how many free pages are always kept.
	vacuumPages = 32
	sparePages  = 256
	// longLog is how many pages SQLite's log may have. Beyond that, writes wait for a
	// checkpoint of the rest.
	longLog = 2000
	// checkpointSteps is the number of steps of a compaction between checkpoints.
	checkpointSteps = 50
)

// keeper drops history, and moves SQLite's log into the file.
type keeper struct {
	log   *log
	limit int64 // of history, in bytes
	due   chan struct{}

	mu   sync.Mutex // held while compacting
	step int64      // rows per step
}

// run keeps the file small until stop is closed.
func (k *keeper) run(ctx context.Context, stop <-chan struct{}) {
	k.finish(ctx)
	for {
		select {
		case <-stop:
			return
		case <-k.due:
		}
		k.checkpoint(ctx)
		k.trim(ctx)
	}
}

// finish does the rest of a compaction that was interrupted.
func (k *keeper) finish(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, compacted, err := k.log.Current(ctx)
	if err == nil && compacted > 0 {
		err = k.sweep(ctx, compacted-1)
	}
	k.report(err, "Could not finish an interrupted compaction")
}

func (k *keeper) report(err error, message string) {
	if err != nil && !errors.Is(err, revision.ErrClosed) && !errors.Is(err, context.Canceled) {
		klog.ErrorS(err, message, "file", k.log.path)
	}
}

// Compact implements revision.Log.
func (l *log) Compact(ctx context.Context, at int64) error {
	k := l.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	l.mu.Lock()
	switch {
	case l.closed:
		l.mu.Unlock()
		return revision.ErrClosed
	case at > l.current:
		l.mu.Unlock()
		return revision.ErrFuture
	case at <= l.asked:
		l.mu.Unlock()
		return revision.ErrCompacted
	}
	l.asked = at
	l.compacted = max(l.compacted, at)
	l.mu.Unlock()
	if err := k.sweep(ctx, at-1); err != nil {
		return fmt.Errorf("compact to revision %d: %w", at, err)
	}
	if err := k.shrink(ctx); err != nil {
		return err
	}
	k.checkpoint(ctx)
	return nil
}

// trim drops the oldest history if there is too much, and a tenth more.
func (k *keeper) trim(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.tooMuch() <= 0 {
		return
	}
	var err error
	for err == nil && k.tooMuch() > -k.limit/10 {
		k.log.mu.Lock()
		to := min(k.log.swept+k.step, k.log.current-1)
		more := to > k.log.swept
		k.log.compacted = max(k.log.compacted, to+1)
		k.log.mu.Unlock()
		if !more {
			break
		}
		err = k.sweep(ctx, to)
	}
	if err == nil {
		err = k.shrink(ctx)
	}
	k.report(err, "Could not drop history above its limit; will retry")
}

// tooMuch returns by how many bytes history exceeds its limit.
func (k *keeper) tooMuch() int64 {
	k.log.mu.RLock()
	defer k.log.mu.RUnlock()
	return k.log.history - k.limit
}

// sweep drops the history made by revisions up to one, in steps that leave
// writes as much time as they take.
func (k *keeper) sweep(ctx context.Context, to int64) error {
	for n := 1; ; n++ {
		if n%checkpointSteps == 0 {
			k.checkpoint(ctx)
		}
		k.log.mu.RLock()
		from, compacted := k.log.swept, k.log.compacted
		k.log.mu.RUnlock()
		if from >= to {
			return nil
		}
		next, err := k.stepEnd(ctx, from, to)
		if err != nil {
			return err
		}
		begun := time.Now()
		var freed int64
		err = k.log.writer.step(func(ctx context.Context, conn *sql.Conn) (err error) {
			freed, err = drop(ctx, conn, from, next, compacted)
			return err
		})
		if err != nil {
			return err
		}
		k.log.mu.Lock()
		k.log.swept, k.log.sweptAt = next, time.Now()
		k.log.history = max(0, k.log.history-freed)
		k.log.mu.Unlock()
		if err := k.rest(ctx, time.Since(begun)); err != nil {
			return err
		}
	}
}

// stepEnd returns the last revision of the next step.
func (k *keeper) stepEnd(ctx context.Context, from, to int64) (next int64, err error) {
	var rows int64
	if err := k.log.db.QueryRowContext(ctx, stepEnd, from, to, k.step).Scan(&next, &rows); err != nil {
		return 0, explain(err)
	}
	if rows < k.step {
		return to, nil
	}
	return next, nil
}

// rest waits as long as a step took, and fits the size of the next step to
// stepTime.
func (k *keeper) rest(ctx context.Context, took time.Duration) error {
	switch {
	case took > 2*stepTime:
		k.step = max(1, k.step/2)
	case took < stepTime:
		k.step = min(maxStep, k.step*2)
	}
	timer := time.NewTimer(took)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-k.log.stop:
		return revision.ErrClosed
	}
}

// drop deletes the victims of the revisions after from, up to to. It returns
// their weight. After an error the connection is closed, which undoes the
// transaction.
func drop(ctx context.Context, conn *sql.Conn, from, to, compacted int64) (freed int64, err error) {
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return 0, err
	}
	var rows int64
	if err := conn.QueryRowContext(ctx, weighVictims, from, to, from, to).Scan(&freed, &rows); err != nil {
		return 0, err
	}
	freed += rows * rowWeight
	for _, s := range []struct {
		text string
		args []any
	}{
		{dropVictimSums, []any{from, to, from, to}},
		{dropVictims, []any{from, to, from, to}},
		{setMeta, []any{metaSwept, to}},
		{setCompacted, []any{compacted}},
		{"COMMIT", nil},
	} {
		if _, err := conn.ExecContext(ctx, s.text, s.args...); err != nil {
			return 0, err
		}
	}
	return freed, nil
}

// shrink gives pages back to the file system if an eighth of the file is free.
func (k *keeper) shrink(ctx context.Context) error {
	for {
		total, free, _, err := pagesOf(ctx, k.log.db)
		if err != nil || free <= sparePages || free*8 < total {
			return err
		}
		begun := time.Now()
		err = k.log.writer.step(func(ctx context.Context, conn *sql.Conn) error {
			return drain(ctx, conn, fmt.Sprintf("PRAGMA incremental_vacuum(%d)", vacuumPages))
		})
		if err != nil {
			return fmt.Errorf("shrink the file: %w", err)
		}
		after, _, _, err := pagesOf(ctx, k.log.db)
		if err != nil || after >= total {
			return err // kine made the file, or a reader needs the pages
		}
		if err := k.rest(ctx, time.Since(begun)); err != nil {
			return err
		}
	}
}

// Shrink implements revision.Shrinking: it writes the file anew, without what is free in it. Writes wait
// for it. There has to be room for a second copy.
func (l *log) Shrink(context.Context) error {
	l.keeper.mu.Lock()
	defer l.keeper.mu.Unlock()
	err := l.writer.step(func(ctx context.Context, conn *sql.Conn) error {
		return drain(ctx, conn, "VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)")
	})
	if err != nil {
		return fmt.Errorf("shrink the file: %w", explain(err))
	}
	return nil
}

// checkpoint moves SQLite's log into the file while writes go on. If the log is
// still too long, writes wait for the rest, and the log is truncated.
func (k *keeper) checkpoint(ctx context.Context) {
	var busy, length, moved int64
	err := k.log.db.QueryRowContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &length, &moved)
	if err == nil && length > longLog {
		err = k.log.writer.step(func(ctx context.Context, conn *sql.Conn) error {
			return drain(ctx, conn, "PRAGMA busy_timeout = 20", "PRAGMA wal_checkpoint(TRUNCATE)", "PRAGMA busy_timeout = 5000")
		})
	}
	k.report(err, "Could not move SQLite's log into the file; will retry")
}
