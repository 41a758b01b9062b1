package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	certutil "k8s.io/client-go/util/cert"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sailplane-dev/sailplane/pkg/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

// epoch is when the tests' identities are first issued.
func epoch() time.Time { return time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC) }

// at is a clock that shows a time after epoch.
func at(after time.Duration) *clocktesting.FakePassiveClock {
	return clocktesting.NewFakePassiveClock(epoch().Add(after))
}

// mustLoad loads an identity or ends the test.
func mustLoad(t testing.TB, dir string, req Request) *Identity {
	t.Helper()
	id, err := Dir(dir).Load(t.Context(), req)
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	return id
}

// mustCert parses the first certificate in PEM.
func mustCert(t testing.TB, data []byte) *x509.Certificate {
	t.Helper()
	certs, err := certutil.ParseCertsPEM(data)
	if err != nil {
		t.Fatalf("parse certificate: %v", err)
	}
	return certs[0]
}

// mustWrite writes a file or ends the test.
func mustWrite(t testing.TB, data []byte, path ...string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(path...), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// mustRemove removes files of a folder or ends the test.
func mustRemove(t testing.TB, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// mustRead returns a folder's files by name.
func mustRead(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	files, err := readFiles(dir, allNames())
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// checkIdentity checks everything that holds for every identity at a time.
func checkIdentity(t testing.TB, id *Identity, now time.Time) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(mustCert(t, id.CA))
	for name, pair := range map[string]struct {
		cert, key []byte
		usage     x509.ExtKeyUsage
	}{
		"server": {id.ServerCert, id.ServerKey, x509.ExtKeyUsageServerAuth},
		"admin":  {id.AdminCert, id.AdminKey, x509.ExtKeyUsageClientAuth},
	} {
		if _, err := tls.X509KeyPair(pair.cert, pair.key); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		opts := x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{pair.usage}}
		if _, err := mustCert(t, pair.cert).Verify(opts); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// isP256 reports whether a certificate's key is on the curve P-256.
func isP256(cert *x509.Certificate) bool {
	key, ok := cert.PublicKey.(*ecdsa.PublicKey)
	return ok && key.Curve == elliptic.P256()
}

// changedFiles returns the names of the files that differ, among those of an identity.
func changedFiles(before, after map[string][]byte) map[string]bool {
	changed := map[string]bool{}
	for _, name := range fileNames() {
		if !bytes.Equal(before[name], after[name]) {
			changed[name] = true
		}
	}
	return changed
}
