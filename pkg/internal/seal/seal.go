// Package seal keeps files where others may read what is stored: encrypted with a key that only those have
// who may read the files.
package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sailplane-dev/sailplane/pkg/internal/secretfile"
)

const (
	// format is the first byte of what is stored: AES-256-GCM, with a nonce of 12 bytes before the
	// sealed text, which is a JSON object of contents by name.
	format = 1
	// minKey is the shortest line of a key file: 32 random bytes in hexadecimal or base64 are longer.
	minKey = 32
)

// Keys are those of a key file. The first one seals, and all open.
type Keys []cipher.AEAD

// Read reads a key file: a key in each line, of which only the owner and group may know.
func Read(file string) (Keys, error) {
	content, err := secretfile.Read(file)
	if err != nil {
		return nil, err
	}
	var all Keys
	for line := range bytes.Lines(content) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if len(line) < minKey {
			return nil, fmt.Errorf("%s: a key has %d characters, want %d random ones or more: openssl rand -hex 32",
				file, len(line), minKey)
		}
		key, err := hkdf.Key(sha256.New, line, nil, "sailplane shared files", 32)
		if err != nil {
			return nil, err
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		one, err := cipher.NewGCM(block)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no key: write one with openssl rand -hex 32", file)
	}
	return all, nil
}

// Seal returns what is stored for files, by their names.
func (s Keys) Seal(files map[string][]byte) ([]byte, error) {
	plain, err := json.Marshal(files)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, s[0].NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return s[0].Seal(append([]byte{format}, nonce...), nonce, plain, []byte{format}), nil
}

// ErrSealed is why stored files cannot be read.
var ErrSealed = errors.New("the stored files were sealed with another key, or are damaged")

// Open returns the files of what is stored, and whether the first key sealed them.
func (s Keys) Open(stored []byte) (files map[string][]byte, first bool, err error) {
	if len(stored) == 0 || stored[0] != format {
		return nil, false, ErrSealed
	}
	for i, one := range s {
		if len(stored) < 1+one.NonceSize() {
			return nil, false, ErrSealed
		}
		nonce, text := stored[1:1+one.NonceSize()], stored[1+one.NonceSize():]
		plain, err := one.Open(nil, nonce, text, []byte{format})
		if err != nil {
			continue
		}
		if err := json.Unmarshal(plain, &files); err != nil {
			return nil, false, fmt.Errorf("%w: %w", ErrSealed, err)
		}
		return files, i == 0, nil
	}
	return nil, false, ErrSealed
}
