package behind

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Server is an API server behind a front.
type Server struct {
	*Process
	Name, Dir         string
	Port              string
	CertFile, KeyFile string
	CA                []byte
	// Command is its program, at its port and with its certificate.
	Command func() *exec.Cmd
	// Announce tells the front where it is, and what authority its certificate is of.
	Announce func(ctx context.Context) error

	right     certificate
	stuttered chan struct{} // closed: it runs again without pauses
	recovered chan struct{} // closed: it does
}

type certificate struct{ file, key string }

// NewServer has a port and a certificate for a server, and runs nothing.
func NewServer(name, dir string) (*Server, error) {
	s := &Server{Name: name, Dir: dir}
	var err error
	if s.Port, err = Port(); err != nil {
		return nil, err
	}
	s.CertFile, s.KeyFile, s.CA, err = Certificate(filepath.Join(dir, "right"))
	s.right = certificate{s.CertFile, s.KeyFile}
	return s, err
}

// Run starts the program.
func (s *Server) Run() error {
	p, err := Start(filepath.Join(s.Dir, "log"), s.Command())
	if err == nil {
		s.Process = p
	}
	return err
}

// Ready waits until the server itself says that it is. One that ended is started again: what
// had its port meanwhile may have been a connection of somebody else.
func (s *Server) Ready(ctx context.Context) error {
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, //nolint:gosec // any certificate will do
	}
	client := http.Client{Timeout: 10 * time.Second, Transport: transport}
	return Until(ctx, patience, func(ctx context.Context) error {
		select {
		case <-s.Exited():
			if err := s.Run(); err != nil {
				return err
			}
		default:
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://127.0.0.1:"+s.Port+"/readyz", http.NoBody)
		if err != nil {
			return err
		}
		response, err := client.Do(r)
		if err != nil {
			return err
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s of %s: %s", r.URL, s.Name, response.Status)
		}
		return nil
	})
}

// APIService is that of a server for a group version.
func (s *Server) APIService(group, version string) string {
	return APIService(group, version, s.Port, s.CA)
}

// APIService is the APIService of a server at a port. It names a host and no address: a server of
// Sailplane presents the certificate that it was given to those who ask for a name.
func APIService(group, version, port string, ca []byte) string {
	return fmt.Sprintf(`
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata:
  name: %s.%s
  annotations: {sailplane.dev/url: "https://localhost:%s"}
spec:
  group: %[2]s
  version: %[1]s
  groupPriorityMinimum: 1000
  versionPriority: 15
  service: {namespace: behind, name: api}
  caBundle: %[4]s
---`, version, group, port, base64.StdEncoding.EncodeToString(ca))
}

// Certificate writes a certificate for localhost that signed itself, and its key, to a folder.
func Certificate(dir string) (certFile, keyFile string, content []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "behind"}, NotAfter: time.Now().Add(24 * time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return "", "", nil, err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return "", "", nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", nil, err
	}
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	content = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for file, b := range map[string][]byte{certFile: content, keyFile: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})} {
		if err := os.WriteFile(file, b, 0o600); err != nil {
			return "", "", nil, err
		}
	}
	return certFile, keyFile, content, nil
}
