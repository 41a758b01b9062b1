package auditing

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// file is a log file that is renamed before it grows too large. It runs nothing
// in the background, so close leaves nothing behind.
type file struct {
	path       string
	maxSize    int64
	maxBackups int
	maxAge     time.Duration

	mu     sync.Mutex
	opened bool
	out    *os.File // nil: it could not be opened again
	size   int64
}

const (
	fileMode   = 0o600
	folderMode = 0o700
	// stamp formats the time a file was renamed, in UTC. Names sort by time.
	stamp = "2006-01-02T15-04-05.000"
)

// open creates the file, or appends to the existing one.
func (f *file) open() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := os.MkdirAll(filepath.Dir(f.path), folderMode); err != nil {
		return fmt.Errorf("audit log %q: create its folder: %w", f.path, err)
	}
	err := f.begin()
	f.opened = err == nil
	return err
}

func (f *file) begin() error {
	out, err := os.OpenFile(f.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, fileMode)
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	info, err := out.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("audit log: %w", err), out.Close())
	}
	f.out, f.size = out, info.Size()
	return nil
}

// close ends writing. It may be called without open.
func (f *file) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened = false
	if f.out != nil {
		_ = f.out.Close() // every write has returned its error
		f.out = nil
	}
}

// Write implements io.Writer. A failed rename or removal is an error after the
// write: the event is in the file all the same.
func (f *file) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.opened {
		return 0, fmt.Errorf("audit log %q is closed", f.path)
	}
	if f.out == nil {
		if err := f.begin(); err != nil {
			return 0, err
		}
	}
	var late error
	if f.maxSize > 0 && f.size > 0 && f.size+int64(len(p)) > f.maxSize {
		late = f.rotate()
	}
	if f.out == nil {
		return 0, late
	}
	n, err := f.out.Write(p)
	f.size += int64(n)
	return n, errors.Join(err, late)
}

// rotate renames the file and opens another. When the rename fails, the old file
// is opened again; when that fails too, the next write tries again.
func (f *file) rotate() error {
	closed := f.out.Close()
	f.out = nil
	renamed := os.Rename(f.path, f.backup(time.Now()))
	return errors.Join(closed, renamed, f.begin(), f.prune(time.Now()))
}

// backup is the new name of the file. Its time moves on while a file of that name
// exists, which a rename would replace.
func (f *file) backup(now time.Time) string {
	prefix, ext := f.parts()
	for {
		name := prefix + now.UTC().Format(stamp) + ext
		if _, err := os.Lstat(name); err != nil {
			return name
		}
		now = now.Add(time.Millisecond)
	}
}

// parts are the prefix and the extension of renamed files.
func (f *file) parts() (prefix, ext string) {
	ext = filepath.Ext(f.path)
	return strings.TrimSuffix(f.path, ext) + "-", ext
}

// prune removes renamed files that are too many or too old.
func (f *file) prune(now time.Time) error {
	if f.maxBackups == 0 && f.maxAge == 0 {
		return nil
	}
	prefix, ext := f.parts()
	entries, err := os.ReadDir(filepath.Dir(f.path))
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	var backups []string
	at := map[string]time.Time{}
	for _, e := range entries {
		name := filepath.Join(filepath.Dir(f.path), e.Name())
		middle, ok := strings.CutPrefix(strings.TrimSuffix(name, ext), filepath.Clean(prefix))
		when, err := time.Parse(stamp, middle)
		if ok && err == nil && strings.HasSuffix(name, ext) {
			backups = append(backups, name)
			at[name] = when
		}
	}
	slices.Sort(backups)
	slices.Reverse(backups) // newest first
	var errs []error
	for i, name := range backups {
		if f.maxBackups > 0 && i >= f.maxBackups || f.maxAge > 0 && now.Sub(at[name]) > f.maxAge {
			errs = append(errs, os.Remove(name))
		}
	}
	return errors.Join(errs...)
}
