package backup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// Directory has backups, each in a file of its own of mode 0600, whose name has the time when it was taken.
type Directory struct {
	// Path is that of the directory, which is created with mode 0700.
	Path string
	// Name is what the names of the files begin with: NAME-20060102T150405Z.backup.
	Name string
	// Keep is how many backups of the name stay: older ones are removed. 0: all.
	Keep int
}

// Write has a backup written, and removes those that are too many when it is complete and on disk. It
// returns the name of the file, and its size. With a name, an error is that of what could not be removed.
func (d Directory) Write(write func(io.Writer) (Info, error)) (file string, info Info, size int64, err error) {
	if err := os.MkdirAll(d.Path, 0o700); err != nil {
		return "", info, 0, err
	}
	file = filepath.Join(d.Path, fmt.Sprintf("%s-%s.backup", d.Name, time.Now().UTC().Format("20060102T150405Z")))
	if info, size, err = WriteFile(file, write); err != nil {
		return "", info, 0, err
	}
	return file, info, size, d.prune()
}

// prune removes all but the newest backups, and what was not completed.
func (d Directory) prune() error {
	ours := regexp.MustCompile(`^` + regexp.QuoteMeta(d.Name) + `-\d{8}T\d{6}Z\.backup(\.incomplete)?$`)
	all, err := os.ReadDir(d.Path) // by name, and so by time
	if err != nil {
		return err
	}
	var kept, gone []string
	for _, entry := range all {
		switch match := ours.FindStringSubmatch(entry.Name()); {
		case match == nil || !entry.Type().IsRegular():
		case match[1] != "":
			gone = append(gone, entry.Name())
		default:
			kept = append(kept, entry.Name())
		}
	}
	if d.Keep > 0 {
		gone = append(gone, kept[:max(0, len(kept)-d.Keep)]...)
	}
	var errs []error
	for _, old := range gone {
		if err := os.Remove(filepath.Join(d.Path, old)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// WriteFile has a backup written to a file of mode 0600, which has that name when it is complete and on
// disk. It returns what was written, and the size of the file.
func WriteFile(name string, write func(io.Writer) (Info, error)) (info Info, size int64, err error) {
	// What lies there may have another mode or owner, or be a link: the file is a new one.
	incomplete := name + ".incomplete"
	if err := os.Remove(incomplete); err != nil && !errors.Is(err, os.ErrNotExist) {
		return info, 0, err
	}
	f, err := os.OpenFile(incomplete, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return info, 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	to := bufio.NewWriterSize(f, 256<<10)
	if info, err = write(to); err != nil {
		return info, 0, err
	}
	if err = errors.Join(to.Flush(), f.Sync()); err != nil {
		return info, 0, err
	}
	stat, err := f.Stat()
	if err != nil {
		return info, 0, err
	}
	if err = os.Rename(f.Name(), name); err != nil {
		return info, 0, err
	}
	if dir, err := os.Open(filepath.Dir(name)); err == nil {
		_ = dir.Sync() // some systems cannot
		_ = dir.Close()
	}
	return info, stat.Size(), f.Close()
}
