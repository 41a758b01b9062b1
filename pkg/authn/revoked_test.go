package authn_test

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/sailplane-dev/sailplane/pkg/authn"
)

// TestRevoke takes back a kubeconfig, and then the administrator's.
func TestRevoke(t *testing.T) {
	t.Parallel()
	kubeconfig := filepath.Join(t.TempDir(), "admin.kubeconfig")
	part := authn.Admin{Kubeconfig: kubeconfig}
	url := serveWith(t, part)
	text, _, err := part.Issue(authn.Login{User: "ann", Groups: []string{"growers"}})
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	client := clientOf(&cert)
	t.Cleanup(client.CloseIdleConnections)
	get := func() int {
		resp, err := client.Get(url + "/version")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	if got := get(); got != http.StatusOK {
		t.Fatalf("before: %d", got)
	}
	admin := adminOf(t, kubeconfig)
	clients, err := part.ClientCertificates()
	if err != nil || len(clients) != 2 || clients[0].Revoked || clients[1].Subject.CommonName != "ann" {
		t.Fatalf("client certificates: %+v, %v", clients, err)
	}
	if until := clients[0].NotAfter; until.After(time.Now().AddDate(0, 0, 31)) {
		t.Errorf("the administrator's lasts until %v", until)
	}
	if err := part.Revoke(t.Context(), clients[1].SerialNumber); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); get() != http.StatusUnauthorized; <-time.After(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the open connection is still good")
		}
	}
	if got := admin.do(t, url); !named("sailplane-admin")(got) {
		t.Errorf("others stay: %d", got.status)
	}
	if clients, err = part.ClientCertificates(); err != nil || len(clients) != 2 || !clients[1].Revoked {
		t.Errorf("client certificates: %+v, %v", clients, err)
	}

	if err := part.Revoke(t.Context(), clients[0].SerialNumber); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the administrator's is refused", url, admin, refused)
	for deadline := time.Now().Add(30 * time.Second); !named("sailplane-admin")(adminOf(t, kubeconfig).do(t, url)); <-time.After(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the kubeconfig has no other")
		}
	}
}

// TestClientCARevoked: the list of an authority, as other programs write it.
func TestClientCARevoked(t *testing.T) {
	t.Parallel()
	one, two := newCA(t), newCA(t)
	lists := filepath.Join(t.TempDir(), "revoked.crl")
	if err := os.WriteFile(lists, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	url := serve(t, authn.ClientCA{File: one.file(t), RevokedFile: lists})
	ann, bob := call{cert: one.sign(t, soon(), "ann")}, call{cert: one.sign(t, soon(), "bob")}
	eventually(t, "nobody is revoked", url, ann, named("ann"))
	replace(t, lists, two.revoke(t, ann.cert), 0o600)
	<-time.After(1500 * time.Millisecond) // it has been looked at by then
	if got := ann.do(t, url); !named("ann")(got) {
		t.Errorf("another authority revokes nothing: %d", got.status)
	}
	replace(t, lists, one.revoke(t, ann.cert), 0o600)
	eventually(t, "ann is revoked", url, ann, refused)
	if got := bob.do(t, url); !named("bob")(got) {
		t.Errorf("bob is not: %d", got.status)
	}
}

// TestClientCARekeyed: a list that does not fit an authority which has another key now takes
// nothing from the lists of other authorities.
func TestClientCARekeyed(t *testing.T) {
	t.Parallel()
	one, two := newCA(t), newCA(t)
	again := one.rekeyed(t)
	ann := call{cert: one.sign(t, soon(), "ann")}
	bob, joe := call{cert: two.sign(t, soon(), "bob")}, call{cert: two.sign(t, soon(), "joe")}
	dir := t.TempDir()
	authorities, lists := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "revoked.crl")
	replace(t, authorities, append(one.pem(), two.pem()...), 0o644)
	replace(t, lists, append(one.revoke(t, ann.cert), two.revoke(t, bob.cert)...), 0o600)
	url := serve(t, authn.ClientCA{File: authorities, RevokedFile: lists})
	eventually(t, "joe is not revoked", url, joe, named("joe"))
	eventually(t, "bob is revoked", url, bob, refused)
	replace(t, authorities, append(again.pem(), two.pem()...), 0o644)
	eventually(t, "the authority has another key", url, call{cert: again.sign(t, soon(), "eve")}, named("eve"))
	if got := bob.do(t, url); !refused(got) {
		t.Errorf("bob is good again: %d", got.status)
	}
	if got := ann.do(t, url); !refused(got) {
		t.Errorf("ann is good again: %d", got.status)
	}
}

// rekeyed is an authority of the same name, and identifier of its key, with another key.
func (c *ca) rekeyed(t *testing.T) *ca {
	t.Helper()
	next := newCA(t)
	template := *c.cert
	template.PublicKey = next.key.Public()
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, next.key.Public(), next.key)
	if err != nil {
		t.Fatal(err)
	}
	if next.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return next
}

// revoke is a list with a certificate, in PEM.
func (c *ca) revoke(t *testing.T, cert *tls.Certificate) []byte {
	t.Helper()
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{
		Number: big.NewInt(1), ThisUpdate: past(), NextUpdate: past().Add(time.Minute), // lists do not end
		RevokedCertificateEntries: []x509.RevocationListEntry{{SerialNumber: leaf.SerialNumber, RevocationTime: past()}},
	}, c.cert, c.key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})
}

// TestClientCANames: an authority names only whom the fields list.
func TestClientCANames(t *testing.T) {
	t.Parallel()
	one := newCA(t)
	file := one.file(t)
	root := call{cert: one.sign(t, soon(), "root", "system:masters")}
	masters := func(w who) bool { return w.status == http.StatusOK && w.Name == "root" }
	open := serve(t, authn.ClientCA{File: file})
	eventually(t, "by default an authority of the operator's names everybody", open, root, masters)
	url := serve(t, authn.ClientCA{File: file, Users: []string{"robot-*", "root"}, Groups: []string{"*"}})
	eventually(t, "who is listed", url, call{cert: one.sign(t, soon(), "robot-1", "robots")}, named("robot-1"))
	for name, cert := range map[string]*tls.Certificate{
		"a user who is not listed": one.sign(t, soon(), "ann", "robots"),
		"a user of the system":     one.sign(t, soon(), "system:admin"),
		"system:masters":           root.cert,
		"a group of the system":    one.sign(t, soon(), "robot-1", "robots", "system:nodes"),
	} {
		if got := (call{cert: cert}).do(t, url); !refused(got) {
			t.Errorf("%s: %d, %+v", name, got.status, got)
		}
	}
}
