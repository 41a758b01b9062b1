package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// entry is an object to apply: what it is, and where its document is.
type entry struct {
	document
	path            string
	kind            schema.GroupVersionKind
	namespace, name string
}

// source has the objects to apply, in order. The objects stay in their files.
type source struct {
	entries []entry
	spooled string // a file to remove
}

// open reads a file, all YAML of a directory, or "-", standard input. An error in
// any document is one before the first object is applied.
func open(path string, stdin io.Reader) (*source, error) {
	s := &source{}
	err := s.read(path, stdin)
	if err == nil {
		err = s.sort()
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *source) close() error {
	if s.spooled == "" {
		return nil
	}
	return os.Remove(s.spooled)
}

func (s *source) read(path string, stdin io.Reader) error {
	if path == "-" {
		return s.spool("standard input", stdin)
	}
	at, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case at.IsDir():
		return s.walk(path)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	if at.Mode().IsRegular() {
		return errors.Join(s.index(path, path, f), f.Close())
	}
	return errors.Join(s.spool(path, f), f.Close()) // a pipe
}

// walk reads the YAML below a directory, but for hidden files.
func (s *source) walk(dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := name != dir && strings.HasPrefix(d.Name(), ".")
		switch {
		case d.IsDir() && hidden:
			return fs.SkipDir
		case d.IsDir(), hidden, !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)):
			return nil
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		return errors.Join(s.index(name, name, f), f.Close())
	})
}

// spool copies a stream to a file, which only this user can read, so that it can be
// read twice and in another order.
func (s *source) spool(name string, from io.Reader) error {
	f, err := os.CreateTemp("", "sailplane-import-*.yaml")
	if err != nil {
		return err
	}
	s.spooled = f.Name()
	err = s.index(name, s.spooled, io.TeeReader(from, f))
	return errors.Join(err, f.Close())
}

// index notes the objects of a stream that is also the file of the path.
func (s *source) index(file, path string, r io.Reader) error {
	return split(file, r, func(d document, text []byte) error {
		u, err := decode(d, text)
		if err != nil {
			return err
		}
		s.entries = append(s.entries, entry{
			document: d, path: path, kind: u.GroupVersionKind(), namespace: u.GetNamespace(), name: u.GetName(),
		})
		return nil
	})
}

// sort puts the objects in order, those of a place as they came, and finds those
// that are there twice.
func (s *source) sort() error {
	slices.SortStableFunc(s.entries, func(a, b entry) int {
		return cmp.Compare(place(a.kind.GroupKind()), place(b.kind.GroupKind()))
	})
	type key struct {
		kind            schema.GroupKind
		namespace, name string
	}
	seen := make(map[key]int, len(s.entries))
	for i := range s.entries {
		e := &s.entries[i]
		k := key{e.kind.GroupKind(), e.namespace, e.name}
		if before, is := seen[k]; is {
			return fmt.Errorf("%s is %s again, which %s is, too: leave one out", e.document, e, s.entries[before].document)
		}
		seen[k] = i
	}
	return nil
}

// String names the object.
func (e *entry) String() string {
	kind := strings.ToLower(e.kind.Kind)
	if e.kind.Group != "" {
		kind += "." + e.kind.Group
	}
	if e.namespace == "" {
		return kind + " " + e.name
	}
	return kind + " " + e.namespace + "/" + e.name
}

// load reads the object.
func (e *entry) load() (*unstructured.Unstructured, error) {
	f, err := os.Open(e.path)
	if err != nil {
		return nil, err
	}
	text := make([]byte, e.length)
	_, err = f.ReadAt(text, e.offset)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", e.document, err)
	}
	u, err := decode(e.document, text)
	if err != nil {
		return nil, err
	}
	if u.GroupVersionKind() != e.kind || u.GetName() != e.name || u.GetNamespace() != e.namespace {
		return nil, fmt.Errorf("%s has changed since the import began", e.document)
	}
	return u, nil
}
