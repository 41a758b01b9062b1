package serviceaccount

import (
	"bytes"
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/internal/pki"
)

// FuzzKeys: whatever a key file holds, it is keys whose first one signs, or an
// error without key material.
func FuzzKeys(f *testing.F) {
	one, err := pki.NewTokenKey()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(one)
	f.Add(append(bytes.Clone(one), one...))
	f.Add(one[:len(one)/2])
	f.Add([]byte("-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n" + string(one)))
	f.Add([]byte("-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n"))
	f.Add([]byte("nothing"))
	f.Fuzz(func(t *testing.T, content []byte) {
		keys, err := parseKeys(content)
		if err != nil {
			for line := range bytes.Lines(content) {
				if line = bytes.TrimSpace(line); len(line) > 32 && bytes.Contains([]byte(err.Error()), line) {
					t.Errorf("the error has a line of the file: %v", err)
				}
			}
			return
		}
		if keys.private == nil || len(keys.all) == 0 || keys.all[0].id != keys.signer.id {
			t.Fatalf("keys without one that signs: %+v", keys.all)
		}
		token, err := keys.sign(&claims{Subject: "a"})
		if err != nil {
			t.Fatal(err)
		}
		parsed, ok := parse(token)
		if !ok {
			t.Fatal("a token that was signed cannot be parsed")
		}
		if _, err := keys.verify(parsed); err != nil {
			t.Error(err)
		}
	})
}
