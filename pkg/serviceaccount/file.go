package serviceaccount

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sailplane-dev/sailplane/pkg/internal/secretfile"
)

// readKeys reads the keys of a file that only its owner and group may touch.
func readKeys(file string) (*keyring, error) {
	content, err := secretfile.Read(file)
	if err != nil {
		return nil, err
	}
	keys, err := parseKeys(content)
	if err != nil {
		return nil, fmt.Errorf("read service account keys from %s: %w", file, err)
	}
	return keys, nil
}

// ensureKeys reads the keys of a file, and makes it with a new key when there
// is none.
func ensureKeys(file string) (*keyring, error) {
	keys, err := readKeys(file)
	if !errors.Is(err, fs.ErrNotExist) {
		return keys, err
	}
	if err := create(file); err != nil {
		return nil, fmt.Errorf("make a service account key: %w", err)
	}
	return readKeys(file)
}

// create makes the file with a new key, whole or not at all, and leaves one
// that another server made meanwhile.
func create(file string) error {
	content, err := makeKey()
	if err != nil {
		return err
	}
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, filepath.Base(file)+".*") // of mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // a left-over is as private as the key
	_, err = f.Write(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	// Unlike a rename, a link never replaces a key that tokens are signed with.
	if err := os.Link(f.Name(), file); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
