package serving

import (
	"path/filepath"
	"testing"

	certutil "k8s.io/client-go/util/cert"
)

// TestHosts: the certificate is for the address that is listened at, and for further names.
func TestHosts(t *testing.T) {
	t.Parallel()
	s := Server{Listen: "10.1.2.3:2379", Hosts: []string{"etcd.example.com"}, CertDir: t.TempDir()}
	if err := s.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	certificates, err := certutil.CertsFromFile(filepath.Join(s.CertDir, "server.crt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"10.1.2.3", "etcd.example.com", "127.0.0.1"} {
		if err := certificates[0].VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
}
