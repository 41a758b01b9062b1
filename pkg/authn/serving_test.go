package authn_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/authn"
)

// serving writes a serving certificate for names into files, in place of what
// they have, and returns the part that has them.
func (c *ca) serving(t *testing.T, dir string, names ...string) authn.ServingCertificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(3), DNSNames: names, NotBefore: past(), NotAfter: soon(),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.cert, key.Public(), c.key)
	if err != nil {
		t.Fatal(err)
	}
	s := authn.ServingCertificate{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
	replace(t, s.KeyFile, keyPEM(t, key), 0o600)
	replace(t, s.CertFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
	return s
}

func keyPEM(t *testing.T, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// signerOf tells whose certificate a server answers with, who is asked for by a name.
func signerOf(t *testing.T, url, name string) string {
	t.Helper()
	d := tls.Dialer{Config: &tls.Config{ServerName: name, InsecureSkipVerify: true}}
	conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].Issuer.CommonName
}

// awaitSigner waits until new connections get a certificate of an authority.
func awaitSigner(t *testing.T, url, name, want string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		got := signerOf(t, url, name)
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the certificate for %q is signed by %q, want %q", name, got, want)
		}
		<-time.After(50 * time.Millisecond)
	}
}

func TestServingCertificates(t *testing.T) {
	t.Parallel()
	one, two, three := newCA(t), newCA(t), newCA(t)
	named := three.serving(t, t.TempDir(), "three.example.com")
	named.Names = []string{"alias.example.com"}
	url := serve(t, one.serving(t, t.TempDir(), "one.example.com"), two.serving(t, t.TempDir(), "*.two.example.com"), named)
	cases := map[string]struct{ reason, ask, want string }{
		"name":     {"a certificate says for whom it is", "one.example.com", one.cert.Subject.CommonName},
		"wildcard": {"or for all of one level", "a.two.example.com", two.cert.Subject.CommonName},
		"further":  {"the part may say further names", "alias.example.com", three.cert.Subject.CommonName},
		"also":     {"beside those of the certificate", "three.example.com", three.cert.Subject.CommonName},
		"deeper":   {"a wildcard is for one level", "a.b.two.example.com", "sailplane-ca"},
		"other":    {"for other names there is the server's own", "localhost", "sailplane-ca"},
		"none":     {"and for those who ask for none", "", "sailplane-ca"},
	}
	for name, tc := range cases {
		if got := signerOf(t, url, tc.ask); got != tc.want {
			t.Errorf("%s: %s: signed by %q, want %q", name, tc.reason, got, tc.want)
		}
	}
}

// TestServingCertificateAlone has a server without an authority of its own.
func TestServingCertificateAlone(t *testing.T) {
	t.Parallel()
	one, two := newCA(t), newCA(t)
	url := serveWith(t, one.serving(t, t.TempDir(), "one.example.com"), two.serving(t, t.TempDir(), "two.example.com"),
		authn.Tokens{File: tokenFile(t, "good,ann,\n")})
	for ask, want := range map[string]*ca{"one.example.com": one, "two.example.com": two, "": one, "localhost": one} {
		if got := signerOf(t, url, ask); got != want.cert.Subject.CommonName {
			t.Errorf("%q: signed by %q, want %q", ask, got, want.cert.Subject.CommonName)
		}
	}
	if got := (call{token: "good"}).do(t, url); !named("ann")(got) {
		t.Errorf("a caller with a token: %+v", got)
	}
}

// TestServingCertificateChanges: new files take effect, broken ones do not, and
// no connection is dropped.
func TestServingCertificateChanges(t *testing.T) {
	t.Parallel()
	dir, first, second := t.TempDir(), newCA(t), newCA(t)
	part := first.serving(t, dir, "one.example.com")
	url := serve(t, part)
	open, dials := keptOpen(t)
	get := func() {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/version", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := open.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	get()
	second.serving(t, dir, "one.example.com")
	awaitSigner(t, url, "one.example.com", second.cert.Subject.CommonName)
	replace(t, part.KeyFile, []byte("no key"), 0o600)
	other := first.serving(t, t.TempDir(), "one.example.com")
	content, err := os.ReadFile(other.CertFile)
	if err != nil {
		t.Fatal(err)
	}
	replace(t, part.CertFile, content, 0o644) // a certificate without its key
	<-time.After(2 * time.Second)             // longer than files are left alone
	if got := signerOf(t, url, "one.example.com"); got != second.cert.Subject.CommonName {
		t.Errorf("with a broken file: signed by %q, want as before", got)
	}
	get()
	if *dials != 1 {
		t.Errorf("the connection that was open was dropped: %d were made", *dials)
	}
}

// keptOpen is a client with one connection, and how often it had to make one.
func keptOpen(t *testing.T) (*http.Client, *int) {
	t.Helper()
	dials := 0
	tr := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials++
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		},
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}, &dials
}

func chmod(t *testing.T, file string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(file, mode); err != nil {
		t.Fatal(err)
	}
}

// TestOldTLS: handshakes that are not safe any more fail.
func TestOldTLS(t *testing.T) {
	t.Parallel()
	address := strings.TrimPrefix(serve(t), "https://")
	cases := map[string]struct {
		reason  string
		config  *tls.Config
		version uint16 // 0: refused
	}{
		"1.3 is preferred": {"both know it", &tls.Config{}, tls.VersionTLS13},
		"1.2":              {"clients that know no better", &tls.Config{MaxVersion: tls.VersionTLS12}, tls.VersionTLS12},
		"1.1":              {"it is broken", &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, 0},
		"CBC": {"no authenticated encryption", &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{
			tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA,
		}}, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.config.InsecureSkipVerify = true
			conn, err := (&tls.Dialer{Config: tc.config}).DialContext(t.Context(), "tcp", address)
			if err != nil {
				if tc.version != 0 {
					t.Errorf("%s: %v", tc.reason, err)
				}
				return
			}
			defer conn.Close()
			if got := conn.(*tls.Conn).ConnectionState().Version; got != tc.version {
				t.Errorf("%s: version %#x, want %#x", tc.reason, got, tc.version)
			}
		})
	}
}
