package sharing

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

// seals have a key each. The first one seals, and all open.
type seals []cipher.AEAD

// readSeals reads a key file: a key in each line, of which only the owner and group may know.
func readSeals(file string) (seals, error) {
	content, err := secretfile.Read(file)
	if err != nil {
		return nil, err
	}
	var all seals
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

// seal returns what is stored for files.
func (s seals) seal(files map[string][]byte) ([]byte, error) {
	plain, err := json.Marshal(files)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, s[0].NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return s[0].Seal(append([]byte{format}, nonce...), nonce, plain, []byte{format}), nil
}

// errSealed is why stored files cannot be read.
var errSealed = errors.New("the files in the storage were sealed with another key, or are damaged")

// open returns the files of what is stored, and whether the first key sealed them.
func (s seals) open(stored []byte) (files map[string][]byte, first bool, err error) {
	if len(stored) == 0 || stored[0] != format {
		return nil, false, errSealed
	}
	for i, one := range s {
		if len(stored) < 1+one.NonceSize() {
			return nil, false, errSealed
		}
		nonce, text := stored[1:1+one.NonceSize()], stored[1+one.NonceSize():]
		plain, err := one.Open(nil, nonce, text, []byte{format})
		if err != nil {
			continue
		}
		if err := json.Unmarshal(plain, &files); err != nil {
			return nil, false, fmt.Errorf("%w: %w", errSealed, err)
		}
		return files, i == 0, nil
	}
	return nil, false, errSealed
}
