package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
)

// raise has revisions go on above those that are lost, and those before refused: it stops the etcd,
// notes a compaction in its database, and starts it again. An etcd whose revision is below that of a
// compaction goes on from that one (https://github.com/etcd-io/etcd/issues/17780).
func (s *embedded) raise(ctx context.Context, dir string, listen []url.URL) error {
	s.etcd.Close()
	s.etcd = nil
	if err := noteCompaction(filepath.Join(dir, memberDir, "snap", "db"), s.lost+revision.Skipped); err != nil {
		return fmt.Errorf("go on above revision %d: %w", s.lost, err)
	}
	if err := s.launch(ctx, s.config(dir, listen)); err != nil {
		return err
	}
	return s.elect(ctx)
}

func noteCompaction(file string, at int64) error {
	db, err := bbolt.Open(file, 0o600, &bbolt.Options{Timeout: databaseWait})
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		meta, err := tx.CreateBucketIfNotExists(schema.Meta.Name())
		if err != nil {
			return err
		}
		return meta.Put(schema.ScheduledCompactKeyName, mvcc.RevToBytes(mvcc.Revision{Main: at}, mvcc.NewRevBytes()))
	})
	return errors.Join(err, db.Close())
}
