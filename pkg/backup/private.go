package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/sailplane-dev/sailplane/pkg/internal/seal"
	"github.com/sailplane-dev/sailplane/pkg/internal/transfer"
)

const (
	// attached begins the key of what is no key of the storage, and comes before all of these.
	attached = '#'
	// privateKey is the key of private files, sealed.
	privateKey = "#private"
	// maxPrivate is how many bytes private files may have together.
	maxPrivate = 16 << 20
)

// Private are files of a server that are not in its storage: its authority, certificates and keys. A
// backup has them sealed: encrypted (AES-256-GCM) with a key that whoever restores it needs.
type Private struct {
	// Dir is the directory with the files: "pki" in the data directory of the binary.
	Dir string
	// KeyFile has the key that seals: a line of 32 random characters or more, as `openssl rand
	// -hex 32` prints them. Of several lines, the first one seals, and all open.
	KeyFile string
}

// Add copies a backup and adds private files to it.
func (p Private) Add(ctx context.Context, from io.Reader, to io.Writer) (Info, error) {
	sealed, err := p.seal()
	if err != nil {
		return Info{}, fmt.Errorf("private files: %w", err)
	}
	r, err := newReader(from)
	if err != nil {
		return Info{}, fmt.Errorf("backup: %w", err)
	}
	defer r.close()
	w, err := newWriter(to, r.counts)
	if err == nil {
		err = w.add(transfer.Entry{Key: []byte(privateKey), Value: sealed})
	}
	if err != nil {
		return Info{}, err
	}
	for e, err := range r.entries(ctx) {
		if err == nil && len(e.Key) > 0 && e.Key[0] == attached {
			err = errors.New("it has private files already")
		}
		if err == nil {
			err = w.add(e)
		}
		if err != nil {
			return w.info, fmt.Errorf("backup: %w", err)
		}
	}
	return w.end()
}

// seal returns the files, sealed.
func (p Private) seal() ([]byte, error) {
	key, err := seal.Read(p.KeyFile)
	if err != nil {
		return nil, err
	}
	files, size := map[string][]byte{}, 0
	err = fs.WalkDir(os.DirFS(p.Dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || path.Base(name) == ".lock" {
			return err
		}
		content, err := os.ReadFile(filepath.Join(p.Dir, filepath.FromSlash(name)))
		files[name] = content
		if size += len(content); size > maxPrivate {
			return fmt.Errorf("%s has more than %d bytes: is it the directory of the private files?", p.Dir, maxPrivate)
		}
		return err
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s has no files", p.Dir)
	}
	if err != nil {
		return nil, err
	}
	return key.Seal(files)
}

// open returns the files that a backup has.
func (p Private) open(sealed []byte) (map[string][]byte, error) {
	if sealed == nil {
		return nil, errors.New("private files: the backup has none: it was taken without them")
	}
	key, err := seal.Read(p.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("private files: %w", err)
	}
	files, _, err := key.Open(sealed)
	if err != nil {
		return nil, fmt.Errorf("private files: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !filepath.IsLocal(filepath.FromSlash(name)) {
			return nil, fmt.Errorf("private files: the name %q is outside of the directory", name)
		}
		there, err := os.ReadFile(filepath.Join(p.Dir, filepath.FromSlash(name)))
		if err == nil && string(there) != string(files[name]) {
			return nil, fmt.Errorf("private files: %s has another %s: move the directory away, or name another one", p.Dir, name)
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("private files: %w", err)
		}
	}
	return files, nil
}

// write writes the files that are not there.
func (p Private) write(files map[string][]byte) error {
	if files == nil {
		return nil
	}
	if err := os.MkdirAll(p.Dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(p.Dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
			return err
		}
		if err := root.WriteFile(name, files[name], 0o600); err != nil {
			return err
		}
	}
	return nil
}
