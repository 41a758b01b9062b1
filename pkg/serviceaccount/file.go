package serviceaccount

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/sailplane-dev/sailplane/pkg/internal/pki"
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
	if err := pki.MakeTokenKey(file); err != nil {
		return nil, fmt.Errorf("make a service account key: %w", err)
	}
	return readKeys(file)
}
