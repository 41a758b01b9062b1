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

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
)

// file is a log file that is renamed before it grows too large. It runs nothing
// in the background, so close leaves nothing behind.
type file struct {
	path       string
	maxSize    int64
	maxBackups int
	maxAge     time.Duration
	// chained has every line carry the hash of the one before, and encode is how the
	// note of a mended line is written.
	chained bool
	encode  func(*auditinternal.Event) ([]byte, error)

	mu      sync.Mutex
	opened  bool
	out     *os.File // nil: it could not be opened again
	size    int64
	place   link      // of the last line, in a chain
	backups []backup  // newest first, as of the last rotation
	retry   time.Time // of a rename that failed
}

// backup is a renamed file. Its newest event is of the time in its name.
type backup struct {
	name string
	at   time.Time
}

const (
	fileMode   = 0o600
	folderMode = 0o700
	// stamp formats the time a file was renamed, in UTC. Names sort by time.
	stamp = "2006-01-02T15-04-05.000"
	// renamePause is the time after a rename that failed before the next one: each begins
	// the file again.
	renamePause = time.Second
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
	if !info.Mode().IsRegular() {
		return nil
	}
	if f.maxSize > 0 || f.chained {
		f.backups, err = f.list()
	}
	if err == nil {
		err = f.mend()
	}
	if err != nil {
		f.out = nil
		return errors.Join(err, out.Close())
	}
	return nil
}

// mend ends a last line that has no end, and finds the place of the chain. What was
// not written to its end is followed by a line that says so.
func (f *file) mend() error {
	most := int64(1)
	if f.chained {
		most = tail
	}
	content, err := last(f.path, most)
	if err != nil && f.chained {
		return err
	}
	var note []byte
	if len(content) > 0 && content[len(content)-1] != '\n' {
		note = []byte("\n")
	}
	// A file that was just begun goes on from the line that was written last.
	if f.chained && (len(content) > 0 || f.place.number == 0) {
		place, torn, err := resume(f.path, f.backups)
		if err != nil {
			return err
		}
		f.place = place
		if len(torn) > 0 {
			line, err := f.encode(mended(torn, time.Now()))
			if err != nil {
				return fmt.Errorf("audit log %q: %w", f.path, err)
			}
			f.place.seal(line)
			f.place = f.place.next(line)
			note = append(note, line...)
		}
	}
	n, err := f.out.Write(note)
	f.size += int64(n)
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
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
	if now := time.Now(); f.maxSize > 0 && f.size > 0 && f.size+int64(len(p)) > f.maxSize && !now.Before(f.retry) {
		late = f.rotate(now)
	}
	if f.out == nil {
		return 0, late
	}
	if f.chained {
		f.place.seal(p)
	}
	n, err := f.out.Write(p)
	f.size += int64(n)
	if err != nil { // a part of the line may be there: the next write mends it
		err = errors.Join(err, f.out.Close())
		f.out = nil
	} else if f.chained {
		f.place = f.place.next(p)
	}
	return n, errors.Join(err, late)
}

// room is how many bytes can be written before a renamed file goes that is younger
// than keep.
func (f *file) room(keep time.Duration, now time.Time) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	young := 0
	for _, b := range f.backups {
		if now.Sub(b.at) < keep {
			young++
		}
	}
	return max(0, f.maxSize-f.size) + int64(max(0, f.maxBackups-young))*f.maxSize
}

// rotate renames the file and opens another. When the rename fails, the old file
// is opened again, and grows until a later write renames it; when that fails too, the
// next write tries again.
func (f *file) rotate(now time.Time) error {
	closed := f.out.Close()
	f.out = nil
	renamed := os.Rename(f.path, f.renamed(now))
	if renamed != nil {
		f.retry = now.Add(renamePause)
	}
	return errors.Join(closed, renamed, f.begin(), f.prune(now))
}

// renamed is the new name of the file. Its time moves on while a file of that name
// exists, which a rename would replace.
func (f *file) renamed(now time.Time) string {
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

// list finds the renamed files, the newest first.
func (f *file) list() ([]backup, error) {
	prefix, ext := f.parts()
	entries, err := os.ReadDir(filepath.Dir(f.path))
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	var all []backup
	for _, e := range entries {
		name := filepath.Join(filepath.Dir(f.path), e.Name())
		middle, ok := strings.CutPrefix(strings.TrimSuffix(name, ext), filepath.Clean(prefix))
		at, err := time.Parse(stamp, middle)
		if ok && err == nil && strings.HasSuffix(name, ext) {
			all = append(all, backup{name, at})
		}
	}
	slices.SortFunc(all, func(a, b backup) int { return strings.Compare(b.name, a.name) })
	return all, nil
}

// prune removes renamed files that are too many or too old.
func (f *file) prune(now time.Time) error {
	var errs []error
	kept := f.backups[:0]
	for i, b := range f.backups {
		if f.maxBackups > 0 && i >= f.maxBackups || f.maxAge > 0 && now.Sub(b.at) > f.maxAge {
			errs = append(errs, os.Remove(b.name))
			continue
		}
		kept = append(kept, b)
	}
	f.backups = kept
	return errors.Join(errs...)
}
