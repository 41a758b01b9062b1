package seal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	firstKey  = "0123456789abcdef0123456789abcdef"
	secondKey = "fedcba9876543210fedcba9876543210"
)

func keys(t *testing.T, lines ...string) Keys {
	t.Helper()
	s, err := Read(keyFile(t, lines...))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func keyFile(t *testing.T, lines ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestSeal(t *testing.T) {
	t.Parallel()
	files := map[string][]byte{"ca.key": []byte("secret"), "revoked.crl": nil}
	stored, err := keys(t, firstKey).Seal(files)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(stored, []byte("secret")) {
		t.Error("what is stored can be read")
	}
	for name, c := range map[string]struct {
		with   Keys
		stored []byte
		first  bool
		err    error
		reason string
	}{
		"its key":           {keys(t, firstKey), stored, true, nil, "a server with the same key reads it"},
		"a newer one first": {keys(t, secondKey, "", firstKey), stored, false, nil, "keys change one server after the other"},
		"another key":       {keys(t, secondKey), stored, false, ErrSealed, "nobody else reads it"},
		"damaged":           {keys(t, firstKey), append(bytes.Clone(stored[:len(stored)-1]), stored[len(stored)-1]^1), false, ErrSealed, "a change is noticed"},
		"cut off":           {keys(t, firstKey), stored[:5], false, ErrSealed, "it has no whole nonce"},
		"another format":    {keys(t, firstKey), append([]byte{format + 1}, stored[1:]...), false, ErrSealed, "a later version may write another one"},
		"nothing":           {keys(t, firstKey), nil, false, ErrSealed, "somebody emptied it"},
	} {
		got, first, err := c.with.Open(c.stored)
		if !errors.Is(err, c.err) || first != c.first {
			t.Errorf("%s: %v, sealed by the first key: %t (%s)", name, err, first, c.reason)
		}
		if diff := cmp.Diff(files, got); err == nil && diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestKeyFilesAreChecked(t *testing.T) {
	t.Parallel()
	open := keyFile(t, firstKey)
	if err := os.Chmod(open, 0o644); err != nil { //nolint:gosec // what is tested
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ file, want string }{
		"short":    {keyFile(t, "password"), "want 32 random ones"},
		"empty":    {keyFile(t, "", " "), "no key"},
		"missing":  {filepath.Join(t.TempDir(), "none"), "no such file"},
		"readable": {open, "chmod 0600"},
	} {
		if _, err := Read(c.file); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
