package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/keep"
)

// open reads all files for the first time.
func (d *Dir[T]) open(ctx context.Context) error {
	if d.opened {
		return nil
	}
	if _, ok := any(new(T)).(object); !ok || d.Path == "" || d.History < 0 {
		return fmt.Errorf("directory %q of %T with a history of %d: want a path, an object, and a history of 0 or more",
			d.Path, *new(T), d.History)
	}
	if err := os.MkdirAll(d.Path, 0o700); err != nil {
		return err
	}
	d.files, d.bad = map[keep.Key]*file{}, map[string]string{}
	found, err := d.keys()
	if err != nil {
		return err
	}
	now := time.Now().UnixMicro()
	version := now
	for key := range found {
		if err := ctx.Err(); err != nil {
			return err
		}
		f, err := d.read(key)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		d.tell(ctx, d.path(key), f.broken)
		f.version = min(f.info.ModTime().UnixMicro(), now)
		d.files[key] = f
	}
	d.version, d.oldest, d.opened = version, version, true
	return nil
}

// keys are those that have files.
func (d *Dir[T]) keys() (map[keep.Key]bool, error) {
	found := map[keep.Key]bool{}
	add := func(namespace string) error {
		entries, err := os.ReadDir(filepath.Join(d.Path, namespace))
		if err != nil {
			return err
		}
		for _, e := range entries {
			name, isYAML := strings.CutSuffix(e.Name(), suffix)
			if key := (keep.Key{Namespace: namespace, Name: name}); isYAML && e.Type().IsRegular() && d.isKey(key) {
				found[key] = true
			}
		}
		return nil
	}
	if d.ClusterScoped {
		return found, add("")
	}
	entries, err := os.ReadDir(d.Path)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if err := add(e.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return found, nil
}

const (
	// pause is how long a look at all files is good. It is longer where a look takes long, so
	// that looking takes a twentieth of the time at most.
	pause = 50 * time.Millisecond
	share = 20
	// tick is how far apart two writes are that certainly have different times.
	tick = 100 * time.Millisecond
)

// look notes what others changed.
func (d *Dir[T]) look(ctx context.Context) error {
	begun := time.Now()
	if begun.Sub(d.looked) < max(pause, share*d.cost) {
		return nil
	}
	present, err := d.keys()
	if err != nil {
		return err
	}
	all := maps.Clone(present)
	for key := range d.files {
		all[key] = true
	}
	for path := range d.bad {
		if key := d.keyAt(path); !all[key] {
			d.forget(path)
		}
	}
	if err := d.compare(ctx, all); err != nil {
		return err
	}
	d.looked = time.Now()
	d.cost = d.looked.Sub(begun)
	return nil
}

// lookAt notes what others changed about one file.
func (d *Dir[T]) lookAt(ctx context.Context, key keep.Key) error {
	return d.compare(ctx, map[keep.Key]bool{key: true})
}

// compare notes what is not as it was, in the order in which it was written.
func (d *Dir[T]) compare(ctx context.Context, keys map[keep.Key]bool) error {
	type written struct {
		key  keep.Key
		file *file // nil if it is gone
	}
	var changed []written
	for key := range keys {
		if err := ctx.Err(); err != nil {
			return err
		}
		known := d.files[key]
		info, err := os.Lstat(d.path(key))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			d.forget(d.path(key))
			if known != nil {
				changed = append(changed, written{key: key})
			}
			continue
		case err != nil:
			return err
		case known != nil && !known.unsure && isSame(known.info, info):
			continue
		case !info.Mode().IsRegular(): // a link may lead elsewhere
			d.tell(ctx, d.path(key), fmt.Errorf("%s is no regular file", d.path(key)))
			continue
		}
		f, err := d.read(key)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the next look sees that it is gone
		} else if err != nil {
			return err
		}
		if d.tell(ctx, d.path(key), f.broken); isChange(f, known) {
			changed = append(changed, written{key, f})
		}
	}
	slices.SortFunc(changed, func(a, b written) int {
		if a.file == nil || b.file == nil {
			return compareBool(a.file == nil, b.file == nil)
		}
		return a.file.info.ModTime().Compare(b.file.info.ModTime())
	})
	for _, w := range changed {
		if err := d.take(w.key, w.file); err != nil {
			return err
		}
	}
	return nil
}

// isChange tells whether a file is another one than is known: not if it is no object any more, where
// the last good state goes on.
func isChange(f, known *file) bool {
	switch {
	case known != nil && known.broken == nil && f.broken != nil:
		return false
	case known != nil && known.sum == f.sum:
		known.info, known.unsure = f.info, f.unsure
		return false
	}
	return true
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// isSame tells whether a file is as it was.
func isSame(a, b fs.FileInfo) bool {
	return a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size() && os.SameFile(a, b)
}

// take notes that a file was written, or is gone. Its time is its version, unless that is none
// that can come next: then the file gets another time.
func (d *Dir[T]) take(key keep.Key, f *file) error {
	now := time.Now().UnixMicro()
	if f == nil {
		delete(d.files, key)
		d.note(change{key: key, version: max(d.version+1, now), removed: true})
		return nil
	}
	f.version = f.info.ModTime().UnixMicro()
	if f.version <= d.version || f.version > now {
		f.version = d.version + 1
		at := time.UnixMicro(f.version)
		if err := os.Chtimes(d.path(key), at, at); err != nil && !errors.Is(err, fs.ErrNotExist) && f.broken == nil {
			return err
		}
		f.unsure = true
	}
	d.files[key] = f
	d.note(change{key: key, version: f.version})
	return nil
}

// tell logs once that a file is no object.
func (d *Dir[T]) tell(ctx context.Context, path string, err error) {
	switch {
	case err == nil:
		d.forget(path)
	case d.bad[path] != err.Error():
		klog.FromContext(ctx).Error(err, "A file is no object: what it was before is served, if it was one since the start", "file", path)
		d.bad[path], d.changedBad = err.Error(), true
	}
}

// forget notes that a file is an object, or gone.
func (d *Dir[T]) forget(path string) {
	if _, known := d.bad[path]; known {
		delete(d.bad, path)
		d.changedBad = true
	}
}
