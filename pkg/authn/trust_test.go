package authn_test

import (
	"crypto/tls"
	"net/http"
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/authn"
)

// TestClientsAreAskedForCertificates: many clients send a certificate only to a
// server that names its authority.
func TestClientsAreAskedForCertificates(t *testing.T) {
	t.Parallel()
	one, two := newCA(t), newCA(t)
	file := one.file(t)
	url := serve(t, authn.ClientCA{File: file})
	status := func(cert *tls.Certificate) int {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
			InsecureSkipVerify: true, Certificates: []tls.Certificate{*cert},
		}}}
		defer client.CloseIdleConnections()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/version", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	wait := func(cert *tls.Certificate) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); status(cert) != http.StatusOK; {
			if time.Now().After(deadline) {
				t.Fatal("the certificate is not asked for")
			}
			<-time.After(50 * time.Millisecond)
		}
	}
	wait(one.sign(t, soon(), "ann"))
	replace(t, file, two.pem(), 0o644)
	wait(two.sign(t, soon(), "bob"))
}
