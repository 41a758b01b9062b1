package authn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
)

// TestRenewal: while the server runs, the administrator gets a new certificate when a third
// of its life is left, in the folder and in the kubeconfig, of the same authority.
func TestRenewal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		a := Admin{Kubeconfig: filepath.Join(dir, "admin.kubeconfig"), Lifetime: 3 * time.Hour}
		a.Dir = a.dir()
		i := &identity{
			Admin: a, addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6443},
			serving: &certificate{name: "serving certificate"}, clientCA: &authority{what: "authority", file: a.Dir},
		}
		if err := i.load(ctx); err != nil {
			t.Fatal(err)
		}
		if err := i.start(ctx, nil); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		first, authority := certificatesOf(t, a.Kubeconfig)
		go func() { _ = i.follow(ctx, nil) }() // it returns nil
		defer synctest.Wait()
		defer cancel()

		time.Sleep(2*time.Hour - time.Minute)
		if now, _ := certificatesOf(t, a.Kubeconfig); !now.Equal(first) {
			t.Errorf("%v after it was issued, the certificate was renewed", time.Since(begun))
		}
		time.Sleep(2 * time.Minute)
		second, same := certificatesOf(t, a.Kubeconfig)
		if second.Equal(first) || !second.NotAfter.After(first.NotAfter) {
			t.Errorf("%v after a certificate of 3h was issued, the kubeconfig has one until %v, as before", time.Since(begun), second.NotAfter)
		}
		if !same.Equal(authority) {
			t.Error("the authority changed with the certificate")
		}
		roots := x509.NewCertPool()
		roots.AddCert(authority)
		usage := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		if _, err := second.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: usage, CurrentTime: time.Now()}); err != nil {
			t.Errorf("the new certificate: %v", err)
		}
		time.Sleep(2 * time.Hour) // and again, after the end of the first
		if third, _ := certificatesOf(t, a.Kubeconfig); !third.NotAfter.After(time.Now()) || third.Equal(second) {
			t.Errorf("%v after the start, the kubeconfig has a certificate until %v", time.Since(begun), third.NotAfter)
		}
	})
}

// certificatesOf are the administrator's certificate of a kubeconfig, and the authority.
func certificatesOf(t *testing.T, kubeconfig string) (admin, authority *x509.Certificate) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	all, err := certutil.ParseCertsPEM(config.CAData)
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf, all[0]
}
