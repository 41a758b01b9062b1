package audit

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

// file is a log file that is renamed before it grows too large. It runs
// nothing in the background, so that nothing is left of it when it is closed.
type file struct {
	path       string
	maxSize    int64
	maxBackups int
	maxAge     time.Duration

	mu     sync.Mutex
	opened bool
	out    *os.File // nil where it could not be begun again
	size   int64
}

const (
	fileMode   = 0o600
	folderMode = 0o700
	// stamp is when a file was renamed, in UTC. It sorts as it reads.
	stamp = "2006-01-02T15-04-05.000"
)

// open makes the file, or goes on with the one there is.
func (f *file) open() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := os.MkdirAll(filepath.Dir(f.path), folderMode); err != nil {
		return fmt.Errorf("audit log %q: make its folder: %w", f.path, err)
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
		_ = f.out.Close() // every write was answered already
		f.out = nil
	}
}

// Write implements io.Writer. What cannot be renamed or removed is an error
// after the write: the event is in the file all the same.
func (f *file) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.opened {
		return 0, fmt.Errorf("audit log %q: it is closed", f.path)
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

// rotate renames the file and begins another. When it cannot be renamed the old
// one goes on; when it cannot be made either, the next write tries to.
func (f *file) rotate() error {
	closed := f.out.Close()
	f.out = nil
	renamed := os.Rename(f.path, f.backup(time.Now()))
	return errors.Join(closed, renamed, f.begin(), f.prune(time.Now()))
}

// backup is the name of the file that is renamed now. The time is moved on while
// there is one of that name, which a rename would replace.
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

// parts are what renamed files begin and end with.
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
