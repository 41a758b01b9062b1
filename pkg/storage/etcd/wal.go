package etcd

import (
	"fmt"
	"os"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
)

// checkLog finds a log that ends before the last entry in the database. etcd would
// wait for the missing entries for ever, or accept writes and drop them until it has
// as many again. A log that cannot be read is left to etcd, which says why.
func checkLog(dir string, applied uint64) error {
	if _, err := os.Stat(dir); err != nil || applied == 0 {
		return nil //nolint:nilerr // etcd says what is wrong with it
	}
	snapshots, err := wal.ValidSnapshotEntries(zap.NewNop(), dir)
	switch {
	case err != nil:
		return nil //nolint:nilerr // as above
	case len(snapshots) == 0:
		return endless(dir, 0, applied)
	}
	from := snapshots[len(snapshots)-1]
	log, err := wal.OpenForRead(zap.NewNop(), dir, from)
	if err != nil {
		return nil //nolint:nilerr // as above
	}
	_, state, entries, err := log.ReadAll()
	_ = log.Close() // it was only read; the error is that it cannot be synced
	if err != nil {
		return nil //nolint:nilerr // as above
	}
	last := from.GetIndex()
	if n := len(entries); n > 0 {
		last = entries[n-1].GetIndex()
	}
	if want := max(applied, state.GetCommit()); last < want {
		return endless(dir, last, want)
	}
	return nil
}

func endless(dir string, last, want uint64) error {
	return fmt.Errorf("log %s: it is damaged: it ends at entry %d, but there were %d, so its end is lost; restore a copy of the directory "+
		"or choose another", dir, last, want)
}
