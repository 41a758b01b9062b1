package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// FuzzRequest: a request that is valid is signed with its own key.
func FuzzRequest(f *testing.F) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "a", Organization: []string{"b", "system:masters"}}, DNSNames: []string{"c.example.com"},
	}, key)
	if err != nil {
		f.Fatal(err)
	}
	good := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	for _, seed := range [][]byte{
		good, nil, der, good[:len(good)/2], append(good, good...), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Headers: map[string]string{"a": "b"}, Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST"}), []byte("-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n"),
	} {
		f.Add(seed, "example.com/client", "client auth")
	}
	for _, signer := range []string{"", "/", "a", "a/b", "a.b/", "/a.b", "a.b/c/d", "A.b/c", "a..b/c", "kubernetes.io/kube-apiserver-client", strings.Repeat("a", 600) + ".b/c"} {
		f.Add(good, signer, "any")
	}
	f.Fuzz(func(t *testing.T, request []byte, signer, usage string) {
		r := &csr{Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: request, SignerName: signer, Usages: []certificatesv1.KeyUsage{certificatesv1.KeyUsage(usage)},
		}}
		if errs := validateSpec(r); len(errs) > 0 {
			return
		}
		parsed, err := parse(r)
		if err != nil || parsed.CheckSignature() != nil {
			t.Errorf("a request that cannot be read is valid: %v", err)
		}
		if domain, name, found := strings.Cut(signer, "/"); !found || !strings.Contains(domain, ".") || name == "" || strings.Contains(name, "/") {
			t.Errorf("signer %q is valid", signer)
		}
	})
}

// FuzzCertificates: what a signer writes is certificates and nothing else.
func FuzzCertificates(f *testing.F) {
	for _, seed := range []string{
		"", "a", "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n", "-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----\n",
		"-----BEGIN PRIVATE KEY-----\nYQ==\n-----END PRIVATE KEY-----\n", "-----BEGIN CERTIFICATE-----\na: b\n\nYQ==\n-----END CERTIFICATE-----\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if checkCertificates(data) != nil || len(data) == 0 {
			return
		}
		for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
			if _, err := x509.ParseCertificates(block.Bytes); err != nil || block.Type != "CERTIFICATE" {
				t.Errorf("%s %s: %v", field.NewPath("status", "certificate"), block.Type, err)
			}
		}
	})
}
