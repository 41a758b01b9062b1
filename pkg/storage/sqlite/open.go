package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/internal/filelock"
	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
)

// open locks a file, finds what is wrong with it, and starts the log, with revisions above those that
// are lost.
func open(ctx context.Context, f File, lost int64, follow revision.Follower) (revision.Log, error) {
	path, err := absoluteFile(f.Path)
	if err != nil {
		return nil, err
	}
	lock, err := filelock.Take(path + ".lock")
	if err != nil {
		var held *filelock.HeldError
		if errors.As(err, &held) {
			return nil, fmt.Errorf("%w; stop that server or choose another file", err)
		}
		return nil, fmt.Errorf("lock: %w; the directory must be writable", err)
	}
	l := &log{path: path, lock: lock, follow: follow, stop: make(chan struct{})}
	if err := l.open(ctx, f, lost); err != nil {
		return nil, errors.Join(err, l.release(ctx))
	}
	return l, nil
}

// absoluteFile returns the absolute path of a file, without links, in a directory that exists.
func absoluteFile(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	// Only the last directory: the ones above may be a disk that is not mounted.
	dir := filepath.Dir(path)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("create the directory: %w", err)
	}
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return "", fmt.Errorf("create the directory: %s is a file; choose another path", dir)
	}
	if path, err = resolve(path); err != nil {
		return "", err
	}
	if strings.ContainsAny(path, "?#%") {
		return "", errors.New("the path contains ?, # or %, which SQLite does not read as part of a path; choose another")
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return "", fmt.Errorf("is a %s, not a file; choose another path", kind(info))
	}
	return path, nil
}

// resolve follows the links of a path, even one to a file that does not exist
// yet.
func resolve(path string) (string, error) {
	const most = 40 // links, as on Linux
	for range most {
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return "", err
		}
		path = filepath.Join(dir, filepath.Base(path))
		to, err := os.Readlink(path)
		if err != nil {
			return path, nil //nolint:nilerr // not a link
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(dir, to)
		}
		path = to
	}
	return "", errors.New("too many symbolic links")
}

func kind(info os.FileInfo) string {
	if info.IsDir() {
		return "directory"
	}
	return "special file"
}

// open opens the locked file and starts the goroutines that work on it.
func (l *log) open(ctx context.Context, f File, lost int64) error {
	copied, err := l.connect(ctx)
	if err != nil {
		return err
	}
	if err := raise(ctx, l.db, l.path, lost, copied); err != nil {
		return err
	}
	l.whole = true
	sync := "PRAGMA synchronous = FULL"
	if f.UnsafeNoSync {
		// With a write-ahead log this keeps the file consistent: only the order
		// in which the log reaches the disk is up to the system.
		sync = "PRAGMA synchronous = NORMAL"
	}
	if err := onOne(ctx, l.db, "PRAGMA journal_mode = WAL"); err != nil {
		return err
	}
	due := make(chan struct{}, 1)
	l.writer = &writer{
		log: l, queue: make(chan *request), steps: make(chan *step), stopped: make(chan struct{}), due: due,
		db: connect(l.path, 1, sync, "PRAGMA wal_autocheckpoint = 0"),
	}
	l.keeper = &keeper{log: l, limit: f.HistoryBytes, due: due, step: firstStep}
	if err := l.load(ctx); err != nil {
		return err
	}
	if err := prepare(ctx, l.db.PrepareContext, map[**sql.Stmt]string{
		&l.read.key: getKey, &l.read.list: list, &l.read.count: count, &l.read.changes: changes,
	}); err != nil {
		return err
	}
	l.work.Go(func() { l.writer.run(l.stop) })
	background := context.WithoutCancel(ctx)
	l.work.Go(func() { l.keeper.run(background, l.stop) })
	l.work.Go(func() { scrub(background, l) })
	return nil
}

// connect opens the file, which is made or brought up to date before. It tells whether it is a copy of one that a server
// had open, without SQLite's log beside it: what was written last is missing then. From then on at least one connection
// is open: with the last one SQLite deletes its log, and a server that is killed then would seem to have left a copy.
func (l *log) connect(ctx context.Context) (copied bool, err error) {
	_, noLog := os.Stat(l.path + "-wal")
	if err := touch(l.path); err != nil {
		return false, err
	}
	l.db = connect(l.path, readers)
	has, err := tables(ctx, l.db)
	if err != nil {
		return false, err
	}
	if has["sailplane_meta"] {
		meta, err := readMeta(ctx, l.db)
		return noLog != nil && meta[metaClean] == 0, err
	}
	if err := l.db.Close(); err != nil { // another file may replace it
		return false, err
	}
	if err := upgrade(ctx, l.path, has); err != nil {
		return false, err
	}
	l.db = connect(l.path, readers)
	return false, nil
}

// touch makes the file: SQLite gives its other files the mode of this one.
func touch(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return file.Close()
}

// load reads the revisions of the log. A file that was not closed cleanly is
// checked.
func (l *log) load(ctx context.Context) error {
	meta, err := readMeta(ctx, l.db)
	if err != nil {
		return err
	}
	if found := meta[metaLayout]; found != layout {
		return fmt.Errorf("its tables have layout %d, but this version only knows layout %d; use a newer version", found, layout)
	}
	l.writer.clean = meta[metaClean] == 1
	if !l.writer.clean {
		if err := check(ctx, l.db, l.path); err != nil {
			return err
		}
	}
	l.swept, l.history, l.sweptAt = meta[metaSwept], meta[metaHistory], time.Now()
	if err := l.db.QueryRowContext(ctx, getCurrent).Scan(&l.current); err != nil {
		return fmt.Errorf("read the newest revision: %w", err)
	}
	if err := l.db.QueryRowContext(ctx, getCompacted).Scan(&l.compacted); err != nil {
		return fmt.Errorf("read the compacted revision: %w", err)
	}
	l.asked = l.compacted
	if l.writer.clean {
		return nil
	}
	var rows int64
	if err := l.db.QueryRowContext(ctx, weighHistory, l.swept).Scan(&l.history, &rows); err != nil {
		return fmt.Errorf("measure the history: %w", err)
	}
	l.history += rows * rowWeight
	return nil
}

func readMeta(ctx context.Context, db *sql.DB) (meta map[string]int64, err error) {
	meta = map[string]int64{}
	rows, err := db.QueryContext(ctx, getMeta)
	err = each(rows, err, func() error {
		var name string
		var value int64
		err := rows.Scan(&name, &value)
		meta[name] = value
		return err
	})
	return meta, err
}

// Close implements revision.Log. It leaves a single file, which can be copied
// or moved.
func (l *log) Close(ctx context.Context) error {
	close(l.stop)
	l.work.Wait()
	ctx = context.WithoutCancel(ctx) // it is short
	err := l.settle(ctx)
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	return errors.Join(err, l.release(ctx))
}

// settle records that the stop was clean. If that fails, the next start checks the
// file.
func (l *log) settle(ctx context.Context) error {
	w := l.writer
	if w.clean || w.unsure {
		return nil
	}
	if err := w.open(ctx); err != nil {
		return nil //nolint:nilerr // see above
	}
	for _, s := range []struct {
		text string
		args []any
	}{
		{"BEGIN IMMEDIATE", nil},
		{setMeta, []any{metaHistory, l.history}},
		{setMeta, []any{metaClean, 1}},
		{"COMMIT", nil},
	} {
		if _, err := w.conn.ExecContext(ctx, s.text, s.args...); err != nil {
			return nil //nolint:nilerr // see above
		}
	}
	return drain(ctx, w.conn, "PRAGMA wal_checkpoint(TRUNCATE)")
}

// release closes what is open and gives up the lock.
func (l *log) release(ctx context.Context) error {
	var errs []error
	unclean := false
	if l.whole {
		meta, err := readMeta(context.WithoutCancel(ctx), l.db)
		unclean = err == nil && meta[metaClean] == 0
	}
	if l.writer != nil {
		l.writer.close()
		errs = append(errs, l.writer.db.Close())
	}
	for _, s := range []*sql.Stmt{l.read.key, l.read.list, l.read.count, l.read.changes} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	if l.db != nil {
		errs = append(errs, l.db.Close())
	}
	if unclean { // and SQLite has moved its log into it, and deleted that: see connect
		errs = append(errs, touch(l.path+"-wal"))
	}
	return errors.Join(append(errs, l.lock.Release())...)
}

// raise has revisions go on above those that are lost, and those before refused. kine's row of the last
// compaction takes the first one. Of a copied file, those are lost that the log had which it lacks.
func raise(ctx context.Context, db *sql.DB, path string, lost int64, copied bool) error {
	if lost <= 0 && !copied {
		return nil
	}
	if copied {
		var newest int64
		if err := db.QueryRowContext(ctx, getCurrent).Scan(&newest); err != nil {
			return fmt.Errorf("read the newest revision: %w", explain(err))
		}
		klog.FromContext(ctx).Error(nil, "The file was copied from a server that used it, without the file -wal beside it: "+
			"what was written last may be missing. Revisions go on far above, and all watches begin anew. "+
			"Take backups with: sailplane backup",
			"file", path, "revision", newest)
		lost = max(lost, newest)
	}
	next := lost + revision.Skipped
	if _, err := db.ExecContext(ctx, raiseTo, next, next, lost); err != nil {
		return fmt.Errorf("go on above revision %d: %w", lost, explain(err))
	}
	return nil
}
