package security

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/builtin/certificates"
)

// TestClientCertificates: what a client presents costs little, and says no more than
// those who signed it may say.
func TestClientCertificates(t *testing.T) {
	// Not parallel: an attempt counts the CPU time of the process.
	file, key := signerFiles(t)
	attack(t, serve(t,
		certificates.Signer{Name: shopSigner, CertificateFile: file, KeyFile: key}, authn.ClientCA{File: file},
	), clientCertificateAttempts())
}

// shopSigner signs for those who may approve for it, and the server trusts it.
const shopSigner = "shop.example.com/client"

// signerFiles are the certificate and the key of an authority.
func signerFiles(t *testing.T) (certificate, key string) {
	t.Helper()
	f := newForger(t, elliptic.P256(), "shop")
	der, err := x509.MarshalPKCS8PrivateKey(f.key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certificate, key = filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")
	for file, block := range map[string]*pem.Block{
		certificate: {Type: "CERTIFICATE", Bytes: f.authorities(t, 1, nil)[0]}, key: {Type: "PRIVATE KEY", Bytes: der},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certificate, key
}

func clientCertificateAttempts() map[string]attempt {
	return map[string]attempt{
		"chain of 100 certificates": {reason: "a chain has 10", try: func(t *testing.T, w *world) {
			f := newForger(t, elliptic.P256(), "stranger")
			w.handshakeFails(t, f.client(t, f.authorities(t, 99, nil)...))
			w.reaches(t, f.client(t, f.authorities(t, 9, nil)...))
		}},
		"large keys in a chain": {reason: "an RSA key has 4096 bits", try: func(t *testing.T, w *world) {
			f := newForger(t, elliptic.P256(), "stranger")
			w.handshakeFails(t, f.client(t, f.authorities(t, 1, rsaKey(8192))...))
			w.reaches(t, f.client(t, f.authorities(t, 1, rsaKey(4096))...))
		}},
		"certificate for system:masters": {reason: "who approves for one signer gives away no rights of the system", try: func(t *testing.T, w *world) {
			w.refusesToSign(t, "shop-masters", asking(t, "shop-masters", shopSigner, "", "system:masters"), "does not sign the organization")
			w.refusesToSign(t, "shop-nodes", asking(t, "shop-nodes", shopSigner, "", "growers", "system:nodes"), "does not sign the organization")
		}},
		"certificate for a server": {reason: "a signer for clients signs no servers", try: func(t *testing.T, w *world) {
			body := strings.Replace(asking(t, "shop-server", shopSigner, ""), `"client auth"`, `"server auth"`, 1)
			w.refusesToSign(t, "shop-server", body, "does not sign the usage")
			body = strings.Replace(asking(t, "shop-all", shopSigner, ""), `"client auth"`, `"digital signature"`, 1)
			w.refusesToSign(t, "shop-all", body, "what it is for")
		}},
		"old kubeconfig of the administrator": {reason: "a lost copy ends soon", try: func(t *testing.T, w *world) {
			block, _ := pem.Decode(w.admin.CertData)
			cert, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			if cert.NotAfter.After(time.Now().AddDate(0, 0, 31)) {
				t.Errorf("it is good until %v", cert.NotAfter)
			}
		}},
		"revoked kubeconfig": {reason: "what was handed out can be taken back", try: func(t *testing.T, w *world) {
			part := authn.Admin{Dir: filepath.Join(w.dir, "pki"), Kubeconfig: filepath.Join(w.dir, "admin.kubeconfig")}
			text, _, err := part.Issue(authn.Login{User: "thief", Groups: []string{"system:masters"}})
			if err != nil {
				t.Fatal(err)
			}
			config, err := clientcmd.RESTConfigFromKubeConfig(text)
			if err != nil {
				t.Fatal(err)
			}
			certificate, err := tls.X509KeyPair(config.CertData, config.KeyData)
			if err != nil {
				t.Fatal(err)
			}
			client := w.client(t, &certificate)
			code := func() int {
				resp, err := client.Get(w.base + "/api")
				if err != nil {
					t.Fatal(err)
				}
				_, _ = readAll(resp)
				return resp.StatusCode
			}
			if got := code(); got != http.StatusOK {
				t.Fatalf("before: %d", got)
			}
			open, err := client.Get(w.base + watched)
			if err != nil {
				t.Fatal(err)
			}
			defer open.Body.Close()
			if err := part.Revoke(t.Context(), certificate.Leaf.SerialNumber); err != nil {
				t.Fatal(err)
			}
			for end := time.Now().Add(limit); code() != http.StatusUnauthorized; time.Sleep(50 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the open connection is still good")
				}
			}
			if code := ends(t, open.Body); code != http.StatusUnauthorized {
				t.Errorf("an open watch ends with %d", code)
			}
		}},
		"chain that leads nowhere": {reason: "strangers choose no keys to verify with", try: func(t *testing.T, w *world) {
			// Each of the authorities may have signed each other, so there are 9! ways. They
			// have the name of the server's authority.
			f := newForger(t, elliptic.P521(), "sailplane-ca")
			client := w.client(t, f.client(t, f.authorities(t, 9, nil)...))
			const requests = 50 // took 7 s of CPU when each was verified
			before := cpuTime(t)
			for range requests {
				w.refuses(t, client)
			}
			if spent := cpuTime(t) - before; spent > 3*time.Second {
				t.Errorf("%d requests took %v of CPU time", requests, spent)
			}
		}},
	}
}

// refusesToSign has the administrator approve a request, which fails and says why.
func (w *world) refusesToSign(t *testing.T, name, body, why string) {
	t.Helper()
	w.must(t, request{as: "climber", method: "POST", path: signing, body: body}, http.StatusCreated)
	w.must(t, request{
		method: "PATCH", path: signing + "/" + name + "/approval", contentType: merge,
		body: `{"status":{"conditions":[{"type":"Approved","status":"True","reason":"a"}]}}`,
	}, http.StatusOK)
	for end := time.Now().Add(limit); ; time.Sleep(5 * time.Millisecond) {
		a := w.must(t, request{method: "GET", path: signing + "/" + name}, http.StatusOK)
		if strings.Contains(a.body, `"certificate":"`) {
			t.Errorf("%s: it is signed: %s", name, short(a.body))
			return
		}
		if strings.Contains(a.body, `"Failed"`) {
			if !strings.Contains(a.body, why) {
				t.Errorf("%s: the request does not say why: %s", name, a.body)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: nothing happens: %s", name, a.body)
		}
	}
}

// forger makes certificates that no authority of the server signed.
type forger struct {
	key  *ecdsa.PrivateKey
	name string
}

func newForger(t *testing.T, curve elliptic.Curve, name string) forger {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return forger{key, name}
}

// sign signs in the name of the forger's authority.
func (f forger) sign(t *testing.T, template *x509.Certificate, public crypto.PublicKey) []byte {
	t.Helper()
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	template.BasicConstraintsValid = true
	parent := &x509.Certificate{Subject: pkix.Name{CommonName: f.name}}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, f.key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// authorities are n certificates of one name, by themselves or with a key of another.
func (f forger) authorities(t *testing.T, n int, public crypto.PublicKey) [][]byte {
	t.Helper()
	if public == nil {
		public = f.key.Public()
	}
	var all [][]byte
	for i := range n {
		all = append(all, f.sign(t, &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 1)), Subject: pkix.Name{CommonName: f.name}, DNSNames: []string{fmt.Sprintf("a%d.example.com", i)},
			IsCA: true, KeyUsage: x509.KeyUsageCertSign,
		}, public))
	}
	return all
}

// client is an administrator's certificate, with others behind it.
func (f forger) client(t *testing.T, chain ...[]byte) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf := f.sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(1000), Subject: pkix.Name{CommonName: "sailplane-admin", Organization: []string{"system:masters"}},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, key.Public())
	return &tls.Certificate{Certificate: append([][]byte{leaf}, chain...), PrivateKey: key}
}

// rsaKey is a public key that belongs to nobody.
func rsaKey(bits int) *rsa.PublicKey {
	n := new(big.Int).Lsh(big.NewInt(1), uint(bits-1))
	return &rsa.PublicKey{N: n.SetBit(n, 0, 1), E: 65537}
}

// handshakeFails tries a request with a certificate: the server takes no connection.
func (w *world) handshakeFails(t *testing.T, certificate *tls.Certificate) {
	t.Helper()
	if resp, err := w.client(t, certificate).Get(w.base + "/api"); err == nil {
		_ = resp.Body.Close()
		t.Errorf("the server takes the connection, and answers %d", resp.StatusCode)
	}
}

// reaches tries a request with a certificate that the server looks at.
func (w *world) reaches(t *testing.T, certificate *tls.Certificate) {
	t.Helper()
	w.refuses(t, w.client(t, certificate))
}

// refuses tries a request on a connection that the server takes.
func (w *world) refuses(t *testing.T, client *http.Client) {
	t.Helper()
	resp, err := client.Get(w.base + "/api")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("%d, %v; want 401", resp.StatusCode, err)
	}
}

// cpuTime is the CPU time that the program took until now. It counts threads that are
// ready to run, too, so it is more on a busy machine.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	runtime.GC() // brings the value up to date
	sample := []metrics.Sample{{Name: "/cpu/classes/user:cpu-seconds"}}
	if metrics.Read(sample); sample[0].Value.Kind() != metrics.KindFloat64 {
		t.Fatal("the runtime has no such metric")
	}
	return time.Duration(sample[0].Value.Float64() * float64(time.Second))
}
