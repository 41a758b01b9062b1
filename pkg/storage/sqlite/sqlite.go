// Package sqlite keeps a server's objects in one SQLite file.
//
// It needs no C compiler: with cgo it uses the C library, without cgo a
// translation of it to Go. Both write the same file. Concurrent writes share a
// transaction, and so the time that the disk takes.
//
// The file has kine's table, so a file that kine wrote is converted at its
// first start. Each row has a checksum.
package sqlite

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/etcdapi"
	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
)

// engine is what metrics and health checks call the storage.
const engine = "sqlite"

// defaultHistoryBytes is how much history is kept unless told otherwise.
const defaultHistoryBytes = 256 << 20

// File is a SQLite database. Beside it are a lock file (its path + ".lock") and,
// while a server runs, SQLite's own "-wal" and "-shm" files. A symbolic link is
// followed: the lock is beside the file itself.
type File struct {
	// Path is the database file. It is created with mode 0600, and the directory
	// it is in with mode 0700; its parent must exist. Empty: "data/state.db" in
	// the working directory.
	Path string
	// HistoryBytes is how many bytes of old versions and deleted objects are kept
	// at most, for reads and watches of the past. A watch that is further behind
	// lists again. The API server drops what is older than some minutes in any
	// case. 0: 256 MiB.
	HistoryBytes int64
	// UnsafeNoSync leaves it to the operating system when writes reach the
	// disk: faster, and a power loss may undo the last acknowledged writes. A
	// killed process loses nothing and the file stays consistent either way.
	// False: every write is on disk before it is acknowledged.
	UnsafeNoSync bool
}

var _ controlplane.Raising = File{}

// String names the file.
func (f File) String() string { return fmt.Sprintf("sqlite file %q", f.Path) }

// Traits implements controlplane.Storage.
func (f File) Traits() controlplane.Traits {
	return controlplane.Traits{Engine: engine, CheapProgress: true, MaxOps: revision.MaxChanges, Durable: !f.UnsafeNoSync}
}

// Open implements controlplane.Storage.
func (f File) Open() controlplane.Backend { return f.OpenAbove(0) }

// OpenAbove implements controlplane.Raising.
func (f File) OpenAbove(lost int64) controlplane.Backend {
	if f.Path == "" {
		f.Path = filepath.Join("data", "state.db")
	}
	if f.HistoryBytes <= 0 {
		f.HistoryBytes = defaultHistoryBytes
	}
	return &etcdapi.Backend{
		Name: f.String(),
		Open: func(ctx context.Context, follow revision.Follower) (revision.Log, error) {
			return open(ctx, f, lost, follow)
		},
	}
}
