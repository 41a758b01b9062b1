package pki

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// TestHandshake serves with a loaded identity and connects with its kubeconfig.
func TestHandshake(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		dir    string
		req    Request
		want   string
		// stranger connects with a kubeconfig of another identity for the same server.
		stranger bool
	}{
		"default":  {reason: "the default administrator", want: "sailplane-admin [system:masters]"},
		"folder":   {reason: "an identity that was loaded, not issued", dir: "pki", want: "sailplane-admin [system:masters]"},
		"user":     {reason: "a user and groups of choice", req: Request{User: "eve", Groups: []string{"b", "a", "b"}}, want: "eve [a b]"},
		"stranger": {reason: "another authority's client", stranger: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := tc.dir
			if dir != "" {
				dir = filepath.Join(t.TempDir(), dir)
				mustLoad(t, dir, tc.req)
			}
			id := mustLoad(t, dir, tc.req)
			endpoint, err := EndpointOf(serve(t, id))
			if err != nil {
				t.Fatal(err)
			}
			client := id
			if tc.stranger {
				client = mustLoad(t, "", tc.req)
			}
			path := filepath.Join(t.TempDir(), "admin.kubeconfig")
			if err := WriteKubeconfig(path, client.Kubeconfig(endpoint.URL, "")); err != nil {
				t.Fatal(err)
			}
			got, err := get(t, path)
			if tc.stranger {
				if err == nil {
					t.Errorf("%s: got %q, want an error", tc.reason, got)
				}
				return
			}
			if err != nil || got != tc.want {
				t.Errorf("%s: got %q, %v, want %q", tc.reason, got, err, tc.want)
			}
		})
	}
}

// serve starts a server that answers with the client's user and groups,
// until the test ends.
func serve(t *testing.T, id *Identity) net.Addr {
	t.Helper()
	cert, err := tls.X509KeyPair(id.ServerCert, id.ServerKey)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(id.CA) {
		t.Fatal("no client authority")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert},
		ErrorLog:  log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			subject := r.TLS.PeerCertificates[0].Subject
			fmt.Fprintf(w, "%s %v", subject.CommonName, slices.Sorted(slices.Values(subject.Organization)))
		}),
	}
	done := make(chan error, 1)
	go func() { done <- server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() {
		_ = server.Shutdown(context.Background())
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return listener.Addr()
}

// get requests / with a kubeconfig.
func get(t *testing.T, path string) (string, error) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	resp, err := client.Get(config.Host)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}
