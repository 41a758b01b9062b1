package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/served"
)

const (
	listing   = ".sailplane-export"
	temporary = ".sailplane-export.tmp"
	heading   = "# Files that sailplane export wrote, and removes when their objects are gone."
	selected  = "# Selection: "
)

// Directory is a sink with a file for each object. It removes the files of an
// earlier export whose objects are gone, and no others: a listing has what it
// wrote. Files that stay the same are not touched.
type Directory struct {
	root      *os.Root
	selection string
	// journal is the listing, to which each new file is added before it is written,
	// so that the export after an interrupted one knows its files.
	journal *os.File
	// ours are the files in the listing; the value tells whether the object is there.
	ours map[string]bool
}

// NewDirectory returns a sink for a directory, which is made if it is not there.
// The selection says which objects are exported: an export of others would remove
// the files of these.
func NewDirectory(dir, selection string) (*Directory, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("--output: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("--output: %w", err)
	}
	d := &Directory{root: root, selection: selection, ours: map[string]bool{}}
	if err := d.open(); err != nil {
		_ = root.Close()
		return nil, fmt.Errorf("--output: %s: %w", dir, err)
	}
	return d, nil
}

// open reads the listing, or makes one in a directory that is empty.
func (d *Directory) open() error {
	content, err := d.root.ReadFile(listing)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := d.empty(); err != nil {
			return err
		}
		if err := d.save(); err != nil {
			return err
		}
	case err != nil:
		return err
	default:
		if err := d.load(string(content)); err != nil {
			return err
		}
	}
	d.journal, err = d.root.OpenFile(listing, os.O_APPEND|os.O_WRONLY, 0)
	return err
}

// empty is an error if the directory has anything but a repository of git.
func (d *Directory) empty() error {
	all, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range all {
		if e.Name() != ".git" {
			return fmt.Errorf("it has %s, and no %s of an earlier export: name an empty directory, or a new one", e.Name(), listing)
		}
	}
	return nil
}

// load reads a listing.
func (d *Directory) load(content string) error {
	for line := range strings.Lines(content) {
		line = strings.TrimRight(line, "\r\n")
		selection, is := strings.CutPrefix(line, selected)
		switch {
		case is && selection != d.selection:
			return fmt.Errorf("it has an export of %s, whose files an export of %s would remove: name another directory",
				selection, d.selection)
		case line == "", strings.HasPrefix(line, "#"):
		case !filepath.IsLocal(filepath.FromSlash(line)) || path.Ext(line) != ".yaml":
			return fmt.Errorf("%s names %q, which is no file of an export: remove the line", listing, line)
		default:
			d.ours[line] = false
		}
	}
	return nil
}

// Add implements [Sink].
func (d *Directory) Add(r served.Resource, u *unstructured.Unstructured, text []byte) error {
	name := fileOf(r, u)
	before, err := d.root.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	same := err == nil && bytes.Equal(before, text)
	if _, is := d.ours[name]; !is {
		if err == nil && !same {
			return fmt.Errorf("%s is there, and no earlier export wrote it: move it out of the directory", name)
		}
		if _, err := d.journal.WriteString(name + "\n"); err != nil {
			return err
		}
	}
	d.ours[name] = true
	if same {
		return nil
	}
	if err := d.root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	return d.replace(name, text)
}

// replace writes a file, whole or not at all.
func (d *Directory) replace(name string, content []byte) error {
	if err := d.root.WriteFile(temporary, content, 0o600); err != nil {
		return err
	}
	return d.root.Rename(temporary, name)
}

// Commit implements [Sink]: it removes the files of objects that are gone.
func (d *Directory) Commit() error {
	for name, is := range d.ours {
		if is {
			continue
		}
		if err := d.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("--output: %w", err)
		}
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if d.root.Remove(dir) != nil {
				break // others are in it
			}
		}
		delete(d.ours, name)
	}
	if err := d.save(); err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	return nil
}

// save writes the listing.
func (d *Directory) save() error {
	lines := append([]string{heading, selected + d.selection}, slices.Sorted(maps.Keys(d.ours))...)
	return d.replace(listing, []byte(strings.Join(lines, "\n")+"\n"))
}

// Abort implements [Sink]. The files that were written stay, and are listed.
func (d *Directory) Abort() {
	_ = d.journal.Close()
	_ = d.root.Close()
}
