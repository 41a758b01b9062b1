package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/client-go/util/keyutil"
)

// TokenKeyFile is the file of a [Dir] that has the key of service account tokens.
const TokenKeyFile = "service-account.key"

// NewTokenKey makes the private key of service account tokens, ECDSA on P-256, in PEM.
func NewTokenKey() ([]byte, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return keyutil.MarshalPrivateKeyToPEM(private)
}

// MakeTokenKey makes a file with such a key, whole or not at all, and leaves one that is there or
// that another server made meanwhile.
func MakeTokenKey(file string) error {
	content, err := NewTokenKey()
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
