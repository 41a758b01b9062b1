package authn_test

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/sailplane-dev/sailplane/pkg/authn"
)

// TestRotateAuthority changes the authority of a running server as the
// documentation of Admin says. Nobody is locked out on the way.
func TestRotateAuthority(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "admin.kubeconfig")
	url := serveWith(t, authn.Admin{Kubeconfig: kubeconfig})
	crt, key := filepath.Join(dir, "pki", "ca.crt"), filepath.Join(dir, "pki", "ca.key")
	old, err := os.ReadFile(crt)
	if err != nil {
		t.Fatal(err)
	}
	next := newCAUntil(t, time.Now().AddDate(1, 0, 0))
	client := next.sign(t, soon(), "ann")
	if got := (call{cert: client}).do(t, url); !refused(got) {
		t.Fatalf("a client of another authority: %d, %+v", got.status, got)
	}

	// Both are trusted; the old one signs.
	replace(t, crt, append(append([]byte{}, old...), next.pem()...), 0o600)
	eventually(t, "the next authority is trusted", url, call{cert: client}, named("ann"))
	if got := signerOf(t, url, ""); got != "sailplane-ca" {
		t.Errorf("signed by %q before it is the next one's turn", got)
	}
	before := adminOf(t, kubeconfig)

	// The next one signs; who came with a certificate of the old one still may.
	replace(t, key, keyPEM(t, next.key), 0o600)
	replace(t, crt, append(next.pem(), old...), 0o600)
	awaitSigner(t, url, "", next.cert.Subject.CommonName)
	eventually(t, "the kubeconfig of before", url, before, named("sailplane-admin"))

	// The old one is gone, and so are those it signed for.
	replace(t, crt, next.pem(), 0o600)
	eventually(t, "the old authority is not trusted any more", url, before, refused)
	eventually(t, "the kubeconfig is a new one", url, adminOf(t, kubeconfig), named("sailplane-admin"))
}

// adminOf is a call with the certificate of a kubeconfig.
func adminOf(t *testing.T, kubeconfig string) call {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	return call{cert: &cert}
}
