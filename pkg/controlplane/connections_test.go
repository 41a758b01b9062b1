package controlplane_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/pki"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// greeting is what the part of this test says on its connections.
const greeting = "hello, this is no HTTP\n"

// TestConnections: connections with the certificate of a part are the part's, before any HTTP. All
// others are served as ever, whoever is slow, and a stop leaves none.
func TestConnections(t *testing.T) {
	t.Parallel()
	guests, err := pki.Dir("").Load(t.Context(), pki.Request{User: "guest"})
	if err != nil {
		t.Fatal(err)
	}
	ca, err := dynamiccertificates.NewStaticCAContent("guests", guests.CA)
	if err != nil {
		t.Fatal(err)
	}
	part := controlplane.ServerPartFunc(func(p *controlplane.ServerPlan) error {
		p.Trust("guests", ca)
		p.Connect("guests", func(c *tls.Conn) bool {
			certs := c.ConnectionState().PeerCertificates
			if len(certs) == 0 || certs[0].Subject.CommonName != "guest" {
				return false
			}
			go func() {
				defer c.Close()
				_, _ = io.WriteString(c, greeting)
			}()
			return true
		})
		return nil
	})
	s, err := controlplane.New("shop").Listen("127.0.0.1:0").Storage(memory.Store{}).
		Limits(controlplane.Limits{HeaderTime: 2 * time.Second}).
		With(authn.Admin{}, core.Namespaces{}, part).Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-s.Ready():
	case err := <-done:
		done <- nil
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.Authority().CurrentCABundleContent())
	address := s.Address().String()
	dial := func() net.Conn {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	slow := dial() // says nothing, meanwhile and afterwards

	guest, err := tls.X509KeyPair(guests.AdminCert, guests.AdminKey)
	if err != nil {
		t.Fatal(err)
	}
	secured := tls.Client(dial(), &tls.Config{
		RootCAs: roots, ServerName: "127.0.0.1", Certificates: []tls.Certificate{guest}, MinVersion: tls.VersionTLS12,
	})
	if got, err := io.ReadAll(secured); string(got) != greeting || err != nil {
		t.Errorf("a guest reads %q, %v", got, err)
	}

	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		transport := &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: protocol == "HTTP/2.0",
		}
		resp, err := (&http.Client{Transport: transport}).Get("https://" + address + "/livez")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		transport.CloseIdleConnections()
		if resp.StatusCode != http.StatusUnauthorized || resp.Proto != protocol {
			t.Errorf("%s: %s over %s", protocol, resp.Status, resp.Proto)
		}
	}

	plain := dial()
	if _, err := io.WriteString(plain, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	const advice = "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
	if got, err := io.ReadAll(plain); string(got) != advice || err != nil {
		t.Errorf("HTTP without TLS: %q, %v", got, err)
	}
	if n, err := slow.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Errorf("one who says nothing reads %d bytes, %v, want the connection closed", n, err)
	}
	dial() // is there when the server stops
}

// TestConnectionsIncomplete: what is required is said.
func TestConnectionsIncomplete(t *testing.T) {
	t.Parallel()
	part := controlplane.ServerPartFunc(func(p *controlplane.ServerPlan) error {
		p.Connect("guests", nil)
		return nil
	})
	_, err := controlplane.New("shop").Storage(memory.Store{}).With(part).Build()
	if err == nil || !strings.Contains(err.Error(), "a function that takes them is required") {
		t.Errorf("%v, want that a function is required", err)
	}
}
