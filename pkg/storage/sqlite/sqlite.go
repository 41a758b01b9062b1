// Package sqlite keeps a server's objects in one SQLite file.
//
// It needs no C compiler: with cgo it uses the C library, without it a
// translation of that to Go. Both write the same file. Writes that come at the
// same time share a transaction, and so the time that the disk takes.
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/k3s-io/kine/pkg/drivers"
	"github.com/k3s-io/kine/pkg/drivers/generic"
	driver "github.com/k3s-io/kine/pkg/drivers/sqlite"
	"github.com/k3s-io/kine/pkg/logstructured"
	"github.com/k3s-io/kine/pkg/logstructured/sqllog"
	"github.com/k3s-io/kine/pkg/server"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/filelock"
	"github.com/sailplane-dev/sailplane/pkg/internal/kine"
)

// batchSize is how many rows one query of the event feed reads at most. kine's
// minimum is 100.
const batchSize = 500

// lastRollback is how long a stop lets SQLite undo what was cut off.
const lastRollback = 10 * time.Second

// File is a SQLite database. Beside it lie a lock file (Path + ".lock") and,
// while a server runs, SQLite's own "-wal" and "-shm" files.
type File struct {
	// Path is the database file. It is created with mode 0600, and missing
	// directories above it with mode 0700. Empty: "data/state.db" in the
	// working directory.
	Path string
	// UnsafeNoSync leaves it to the operating system when writes reach the
	// disk: faster, and a power loss may undo the last acknowledged writes. A
	// killed process loses nothing and the file stays consistent either way.
	// False: every write is on disk before it is acknowledged.
	UnsafeNoSync bool
}

var _ controlplane.Storage = File{}

// Traits implements controlplane.Storage.
func (f File) Traits() controlplane.Traits {
	return controlplane.Traits{CheapProgress: true, Durable: !f.UnsafeNoSync}
}

// Open implements controlplane.Storage.
func (f File) Open() controlplane.Backend {
	if f.Path == "" {
		f.Path = filepath.Join("data", "state.db")
	}
	s := &storage{file: f}
	s.Storage = kine.NewStorage(kine.Driver{
		Name:     fmt.Sprintf("sqlite file %q", f.Path),
		Open:     s.connect,
		Compact:  s.compact,
		FeedEnds: true,
	})
	return s
}

// storage is a kine storage that holds the lock of its file while it runs.
type storage struct {
	*kine.Storage
	file File

	mu   sync.Mutex
	lock *filelock.Lock
	path string // absolute
	db   *generic.Generic
}

// Start implements controlplane.Backend.
func (s *storage) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lock != nil {
		return fmt.Errorf("sqlite file %q: started before; open the storage again", s.file.Path)
	}
	if err := s.prepare(ctx); err != nil {
		return fmt.Errorf("sqlite file %q: %w", s.file.Path, errors.Join(err, s.unlock()))
	}
	if err := s.Storage.Start(ctx); err != nil {
		return errors.Join(err, s.released(ctx), s.unlock())
	}
	return nil
}

// Stop implements controlplane.Backend.
func (s *storage) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := errors.Join(s.Storage.Stop(ctx), s.released(ctx)); err != nil {
		// The file may still be open: keep others off it.
		return err
	}
	s.merge(ctx)
	return s.unlock()
}

// released waits for the last connection. Closing a database closes those that
// are idle; one whose query or transaction was cut off closes when that has
// been rolled back.
func (s *storage) released(ctx context.Context) error {
	if s.db == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lastRollback)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for s.db.DB.Stats().OpenConnections > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("sqlite file %q: stop: waiting for the last connection: %w", s.file.Path, context.Cause(ctx))
		}
	}
	return nil
}

// merge leaves one file, to be copied or moved. SQLite merges its log into the
// file when the last connection closes, but not when its last query was cut
// off, nor when two close at once. Nothing is lost where it fails: the next
// start tries again.
func (s *storage) merge(ctx context.Context) {
	if _, err := os.Stat(s.path + "-wal"); err == nil && s.db != nil {
		_ = check(ctx, s.dsn())
	}
}

func (s *storage) unlock() error {
	lock := s.lock
	s.lock = nil
	return lock.Release()
}

// prepare makes what the database needs and finds what is wrong with it. The
// driver would try again every second, for minutes, and say it to a log.
func (s *storage) prepare(ctx context.Context) error {
	path, err := filepath.Abs(s.file.Path)
	if err != nil {
		return err
	}
	if strings.ContainsAny(path, "?#%") {
		return errors.New("the path contains one of ?, # and %, which SQLite reads as something else; choose another")
	}
	s.path = path
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("create the directory: %w", err)
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("is a %s, not a file; choose another path", kind(info))
	}
	if s.lock, err = filelock.Take(path + ".lock"); err != nil {
		var held *filelock.HeldError
		if errors.As(err, &held) {
			return fmt.Errorf("%w; stop that server or choose another file", err)
		}
		return fmt.Errorf("lock: %w; the directory must be writable", err)
	}
	// SQLite gives its other files the mode of this one.
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return check(ctx, s.dsn())
}

func kind(info os.FileInfo) string {
	if info.IsDir() {
		return "directory"
	}
	return "special file"
}

// dsn is the data source name in the dialect of kine's driver, which
// translates it for builds without cgo.
func (s *storage) dsn() string {
	sync := "FULL"
	if s.file.UnsafeNoSync {
		// In WAL mode this keeps the file consistent: only the order in which
		// the log reaches the disk is left open.
		sync = "NORMAL"
	}
	return s.path + "?_journal_mode=WAL&_busy_timeout=30000&_synchronous=" + sync +
		"&_txlock=immediate&_stmt_cache_size=20&_kine_disable_startup_vacuum=true"
}

func (s *storage) connect(ctx context.Context, wg *sync.WaitGroup) (server.Backend, error) {
	_, db, err := driver.NewVariant(ctx, wg, "sqlite3", &drivers.Config{DataSourceName: s.dsn()})
	if err != nil {
		return nil, explain(err)
	}
	// SQLite has one writer at a time. Waiting for a lock of ours costs
	// nothing; SQLite's own waiting sleeps up to 100 ms.
	db.LockWrites = true
	s.db = db
	d, err := newDialect(ctx, db)
	if err != nil {
		return nil, explain(err)
	}
	wg.Go(func() { d.writes.run(ctx) })
	// The zeros turn kine's own compaction off; compact does its work.
	return logstructured.New(&log{SQLLog: sqllog.New(d, 0, 0, 0, 0, batchSize, batchSize), dialect: d}), nil
}
