package serviceaccount

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/internal/follow"
	"github.com/sailplane-dev/sailplane/pkg/internal/pki"
)

// block is a key in PEM.
func block(t *testing.T, kind string, der []byte, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func ecdsaKey(t *testing.T, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func private(t *testing.T, key any) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return block(t, "PRIVATE KEY", der, err)
}

func public(t *testing.T, key any) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	return block(t, "PUBLIC KEY", der, err)
}

func TestParseKeys(t *testing.T) {
	t.Parallel()
	one, two := ecdsaKey(t, elliptic.P256()), ecdsaKey(t, elliptic.P256())
	long, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(one)
	sec1 := block(t, "EC PRIVATE KEY", der, err)
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	short := block(t, "RSA PRIVATE KEY", []byte("short"), nil)
	for name, c := range map[string]struct {
		reason  string
		content string
		algs    string // of the keys, in order
		err     string
	}{
		"ECDSA":         {"P-256 signs ES256", private(t, one), "ES256", ""},
		"RSA":           {"RSA signs RS256", private(t, long), "RS256", ""},
		"openssl":       {"it writes the curve first", "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n" + sec1, "ES256", ""},
		"several":       {"all verify", private(t, one) + public(t, long.Public()) + private(t, two), "ES256 RS256 ES256", ""},
		"twice":         {"a key is published once", private(t, one) + public(t, one.Public()), "ES256", ""},
		"text":          {"there may be comments", "# ours, of 2026\n" + private(t, one), "ES256", ""},
		"nothing":       {"nothing would sign", "", "", "it has no key in PEM"},
		"public":        {"nothing would sign", public(t, one.Public()) + private(t, two), "", "key 1: it is public: the first key signs and must be private"},
		"P-384":         {"it is another algorithm", private(t, ecdsaKey(t, elliptic.P384())), "", "key 1: it is an ECDSA key of curve P-384: want P-256"},
		"Ed25519":       {"many cannot verify it", private(t, edwards), "", "want an RSA or an ECDSA key"},
		"second broken": {"it would verify nothing", private(t, one) + short, "", `key 2: a block of type "RSA PRIVATE KEY" cannot be read`},
		"certificate":   {"it is no key", block(t, "SOMETHING", []byte("a"), nil), "", `key 1: a block of type "SOMETHING" cannot be read`},
		"cut off":       {"it is being written", private(t, one) + private(t, two)[:100], "", "only 1 of 2 PEM blocks can be read"},
		"first damaged": {"another key would sign", strings.Replace(private(t, one), "M", "!", 1) + private(t, two), "", "only 1 of 2 PEM blocks can be read"},
	} {
		t.Run(name, func(t *testing.T) {
			keys, err := parseKeys([]byte(c.content))
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("%s: %v, want %s", c.reason, err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", c.reason, err)
			}
			var algs []string
			for _, k := range keys.all {
				algs = append(algs, k.alg)
			}
			if got := strings.Join(algs, " "); got != c.algs || keys.signer.id != keys.all[0].id {
				t.Errorf("%s: keys %s, want %s", c.reason, got, c.algs)
			}
		})
	}
}

// TestFile: a key that is made is private, and stays.
func TestFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "new", pki.TokenKeyFile)
	first, err := ensureKeys(file)
	if err != nil {
		t.Fatal(err)
	}
	again, err := ensureKeys(file)
	if err != nil || again.signer.id != first.signer.id {
		t.Errorf("the second time: %v, %v", again, err)
	}
	if err := pki.MakeTokenKey(file); err != nil {
		t.Errorf("when another server was first: %v", err)
	}
	if kept, err := readKeys(file); err != nil || kept.signer.id != first.signer.id {
		t.Errorf("it was replaced: %v, %v", kept, err)
	}
	if entries, err := os.ReadDir(filepath.Dir(file)); err != nil || len(entries) != 1 {
		t.Errorf("there are %v, %v", entries, err)
	}
	if runtime.GOOS == "windows" {
		return
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info, err)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readKeys(file); err == nil || !strings.Contains(err.Error(), "run chmod 0600") {
		t.Errorf("a file that all may read: %v", err)
	}
}

// TestFollow: keys follow their file, and bad files change nothing.
func TestFollow(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key.pem")
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	old, next := private(t, ecdsaKey(t, elliptic.P256())), private(t, ecdsaKey(t, elliptic.P256()))
	i := &issuer{Tokens: Tokens{KeyFile: file}}
	write(old)
	keys, err := i.keys()
	if err != nil {
		t.Fatal(err)
	}
	i.now.Store(&running{keys: keys})
	token, err := keys.sign(&claims{Issuer: "https://a"})
	if err != nil {
		t.Fatal(err)
	}
	parsed, ok := parse(token)
	if !ok {
		t.Fatal("our token is none")
	}
	source, first, refused := i.source(), keys.signer.id, ""
	source.Use = func(ctx context.Context, content []byte) error {
		err := i.use(ctx, content)
		if err != nil {
			refused = err.Error()
		}
		return err
	}
	followed := &follow.File{Source: source}
	followed.Begun([]byte(old))
	for _, step := range []struct {
		reason, content, refused string
		changed, verifies        bool
	}{
		{"the same", old, "", false, true},
		{"empty while it is written", "", "it has no key in PEM", false, true},
		{"half written", next + old[:80], "only 1 of 2 PEM blocks can be read", false, true},
		{"the new one signs", next + old, "", true, true},
		{"the old one is gone", next, "", true, false},
		{"and comes back", old + next, "", false, true},
	} {
		write(step.content)
		refused = ""
		followed.Look(t.Context(), time.Now())
		if (refused == "") != (step.refused == "") || !strings.Contains(refused, step.refused) {
			t.Errorf("%s: refused with %q, want %q", step.reason, refused, step.refused)
		}
		keys := i.now.Load().keys
		if (keys.signer.id != first) != step.changed {
			t.Errorf("%s: %s signs", step.reason, keys.signer.id)
		}
		if _, err := keys.verify(parsed); (err == nil) != step.verifies {
			t.Errorf("%s: the old token: %v", step.reason, err)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	followed.Look(t.Context(), time.Now())
	if got := i.now.Load().keys.signer.id; got != first {
		t.Errorf("the file is gone: %s signs, want %s as before", got, first)
	}
}
