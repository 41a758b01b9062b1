package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/k3s-io/kine/pkg/server"
)

// compactStep is how many revisions one transaction drops, so that writers do
// not wait for a long one.
const compactStep = 1000

// compact drops the history below revision in small transactions. It stands in
// for kine's compaction, which ends the process when a commit fails
// (https://github.com/k3s-io/kine/blob/v0.16.4/pkg/drivers/generic/tx.go).
func (s *storage) compact(ctx context.Context, revision, current int64) error {
	done, err := s.db.GetCompactRevision(ctx)
	if err != nil {
		return fmt.Errorf("read the compacted revision: %w", err)
	}
	if revision <= done {
		return server.ErrCompacted
	}
	for done < revision {
		done = min(done+compactStep, revision)
		if err := s.compactTo(ctx, done, current); err != nil {
			return fmt.Errorf("compact to revision %d: %w", done, err)
		}
	}
	return nil
}

func (s *storage) compactTo(ctx context.Context, revision, current int64) (err error) {
	s.db.Lock()
	defer s.db.Unlock()
	tx, err := s.db.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		if rollback := tx.Rollback(); err != nil && !errors.Is(rollback, sql.ErrTxDone) {
			err = errors.Join(err, rollback)
		}
	}()
	// The newest row stays even where it is a deletion: its number is the
	// current revision, which must not go backwards.
	below := min(revision, current-1)
	if _, err := tx.ExecContext(ctx, s.db.CompactSQL.Query, below, below); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, s.db.UpdateCompactSQL.Query, revision); err != nil {
		return err
	}
	return tx.Commit()
}
