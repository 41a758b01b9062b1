package pki

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/util/keyutil"
)

// errorCase is an identity from epoch that cannot be loaded again.
type errorCase struct {
	reason string
	after  time.Duration
	req    Request
	damage func(t *testing.T, dir string)
	kind   error
	// says is what the error says beside the file's path.
	file, says string
}

// startOver is in every error about an authority.
const startOver = "delete folder"

// TestLoadErrors checks what is reported instead of repaired.
func TestLoadErrors(t *testing.T) {
	t.Parallel()
	write := func(name, content string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { mustWrite(t, []byte(content), dir, name) }
	}
	for name, tc := range map[string]errorCase{
		"corrupt ca.crt": {reason: "an authority is not replaced silently", damage: write("ca.crt", "junk"), kind: ErrCorrupt, file: "ca.crt", says: startOver},
		"empty ca.key":   {reason: "an empty key is not replaced silently", damage: write("ca.key", ""), kind: ErrCorrupt, file: "ca.key", says: startOver},
		"corrupt server.crt": {
			reason: "a leaf is easy to have back", damage: write("server.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
			kind: ErrCorrupt, file: "server.crt", says: "server.key to have them issued again",
		},
		"corrupt admin.key": {reason: "a leaf is easy to have back", damage: write("admin.key", "junk"), kind: ErrCorrupt, file: "admin.key", says: "admin.key to have them issued again"},
		"no ca.key": {
			reason: "without its key an authority is of no use",
			damage: func(t *testing.T, dir string) { mustRemove(t, dir, "ca.key") },
			kind:   ErrMissing, file: "ca.key", says: startOver,
		},
		"other ca.key": {
			reason: "a key of something else cannot sign",
			damage: func(t *testing.T, dir string) { mustWrite(t, mustRead(t, dir)["admin.key"], dir, "ca.key") },
			kind:   ErrMismatch, file: "ca.key", says: startOver,
		},
		"leaf as ca": {
			reason: "a leaf cannot sign",
			damage: func(t *testing.T, dir string) {
				mustWrite(t, mustRead(t, dir)["admin.crt"], dir, "ca.crt")
				mustWrite(t, mustRead(t, dir)["admin.key"], dir, "ca.key")
			},
			kind: ErrAuthority, file: "ca.crt", says: startOver,
		},
		"ca expires": {reason: "renewing an authority is for people", after: 3620 * day, kind: ErrValidity, file: "ca.crt", says: startOver},
		"ca expired": {reason: "renewing an authority is for people", after: 4000 * day, kind: ErrValidity, file: "ca.crt", says: startOver},
		"clock":      {reason: "an authority of the future is a wrong clock", after: -day, kind: ErrValidity, file: "ca.crt", says: "check the clock"},
		"host":       {reason: "a host that no certificate can have", req: Request{Hosts: []string{"a b"}}, kind: ErrHost, says: `"a b"`},
		"folder": {
			reason: "a file that cannot be read is not replaced",
			damage: func(t *testing.T, dir string) {
				mustRemove(t, dir, "server.crt")
				if err := os.Mkdir(filepath.Join(dir, "server.crt"), 0o700); err != nil {
					t.Fatal(err)
				}
			},
			file: "server.crt",
		},
	} {
		t.Run(name, tc.run)
	}
}

func (tc errorCase) run(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pki")
	mustLoad(t, dir, Request{Clock: at(0)})
	if tc.damage != nil {
		tc.damage(t, dir)
	}
	before := readable(dir)
	tc.req.Clock = at(tc.after)
	_, err := Dir(dir).Load(t.Context(), tc.req)
	if err == nil || (tc.kind != nil && !errors.Is(err, tc.kind)) {
		t.Fatalf("%s: error %v, want %v", tc.reason, err, tc.kind)
	}
	path := ""
	if tc.file != "" {
		path = filepath.Join(dir, tc.file)
	}
	if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), tc.says) {
		t.Errorf("%s: error %q should say %q and %q", tc.reason, err, path, tc.says)
	}
	if tc.says == startOver && !strings.Contains(err.Error(), "delete folder "+dir+" to start with a new identity") {
		t.Errorf("%s: error %q does not say how to start over", tc.reason, err)
	}
	if diff := cmp.Diff(before, readable(dir)); diff != "" {
		t.Errorf("%s: files changed (-before +after):\n%s", tc.reason, diff)
	}
}

// readable returns the files of a folder that can be read.
func readable(dir string) map[string]string {
	files := map[string]string{}
	for _, name := range fileNames() {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			files[name] = string(data)
		}
	}
	return files
}

// TestLoadForeignAuthority loads authorities that were made elsewhere.
func TestLoadForeignAuthority(t *testing.T) {
	t.Parallel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		usages []x509.ExtKeyUsage
		err    error
	}{
		"rsa":        {reason: "an authority with any key that can sign is used"},
		"restricted": {reason: "an authority that may sign clients only", usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, err: ErrAuthority},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			template := &x509.Certificate{
				Subject: pkix.Name{CommonName: "company"}, NotBefore: epoch(), NotAfter: epoch().Add(365 * day),
				ExtKeyUsage: tc.usages, BasicConstraintsValid: true, IsCA: true,
			}
			der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			mustWrite(t, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), dir, caCert)
			mustWrite(t, keyPEM, dir, caKey)
			id, err := Dir(dir).Load(t.Context(), Request{Clock: at(0)})
			if !errors.Is(err, tc.err) {
				t.Fatalf("%s: error %v, want %v", tc.reason, err, tc.err)
			}
			if err == nil {
				checkIdentity(t, id, epoch())
			}
		})
	}
}
