package authz_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/builtin/authorization"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/builtin/rbac"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// TestFilteredWatchOverTheNetwork watches a server that listens: over HTTP/2,
// HTTP/1.1 and WebSocket, each of which writes its answer in another way.
func TestFilteredWatchOverTheNetwork(t *testing.T) {
	config := listening(t)
	admin := kubernetes.NewForConfigOrDie(config)
	fill(t, admin, "default", letters...)
	give(t, admin, "default", "/configmaps", "b", "e")
	for name, tc := range map[string]struct {
		protocol string
		header   http.Header
		status   int
	}{
		"HTTP/2":   {"h2", nil, http.StatusOK},
		"HTTP/1.1": {"http/1.1", nil, http.StatusOK},
		"WebSocket": {"http/1.1", http.Header{
			"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Origin": {config.Host},
			"Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"c2FpbHBsYW5lIHRlc3RzLg=="},
		}, http.StatusSwitchingProtocols},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/api/v1/namespaces/default/configmaps?watch=true", nil)
			if err != nil {
				t.Fatal(err)
			}
			for key, values := range tc.header {
				request.Header[key] = values
			}
			request.Header.Set("Impersonate-User", "alice")
			secure, err := rest.TLSConfigFor(config)
			if err != nil {
				t.Fatal(err)
			}
			secure.NextProtos = []string{tc.protocol}
			transport := &http.Transport{TLSClientConfig: secure, ForceAttemptHTTP2: tc.protocol == "h2"}
			if tc.protocol != "h2" {
				transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
			}
			defer transport.CloseIdleConnections()
			response, err := transport.RoundTrip(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if response.StatusCode != tc.status {
				t.Fatalf("status %d, want %d", response.StatusCode, tc.status)
			}
			var seen []string
			// In a stream as in frames each event ends with a line.
			for lines := bufio.NewReader(response.Body); len(seen) < 2; {
				line, err := lines.ReadString('\n')
				if err != nil {
					t.Fatalf("after %v: %v", seen, err)
				}
				_, named, _ := strings.Cut(line, `"name":"`)
				object, _, _ := strings.Cut(named, `"`)
				seen = append(seen, object)
			}
			if got := strings.Join(seen, " "); got != "b e" {
				t.Errorf("saw %s, want b e", got)
			}
		})
	}
}

// listening runs a server on a port and returns its administrator's configuration.
func listening(t *testing.T) *rest.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	s, err := controlplane.New("test").Listen("127.0.0.1:0").Storage(memory.Store{}).With(
		authn.Admin{Kubeconfig: file}, authz.RBAC{}, rbac.All(), authorization.All(), core.Namespaces{}, core.ConfigMaps{},
		authz.FilteredLists{Resources: []schema.GroupResource{{Resource: "configmaps"}}},
	).Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-s.Ready():
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	return config
}
