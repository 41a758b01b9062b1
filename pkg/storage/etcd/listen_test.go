package etcd

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// free is the URL of an address at which nobody listens.
func free(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

// listens starts an etcd that listens at the address. Where somebody else got that
// first, it takes another.
func listens(t *testing.T) (member controlplane.Backend, address string) {
	t.Helper()
	for tries := 1; ; tries++ {
		address = free(t)
		member = Embedded{Dir: t.TempDir(), UnsafeNoSync: true, Listen: []string{address}}.Open()
		err := member.Start(t.Context())
		if err == nil {
			return member, address
		}
		if tries == 5 || !strings.Contains(err.Error(), "address already in use") {
			t.Fatal(err)
		}
		_ = member.Stop(context.Background()) // it did not start
	}
}

func TestEmbeddedListens(t *testing.T) {
	member, address := listens(t)
	stopped := false
	stop := func() {
		if !stopped {
			stopped = true
			if err := member.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		}
	}
	defer stop()

	health, err := http.Get(address + "/health") //nolint:noctx // a test of a server in this process
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(health.Body)
	health.Body.Close()
	if err != nil || health.StatusCode != http.StatusOK || !strings.Contains(string(body), `"true"`) {
		t.Errorf("/health is %s %s (%v), want 200 and healthy", health.Status, body, err)
	}

	// What another process writes, this one reads.
	other := Cluster{Endpoints: []string{address}, DialTimeout: patience}.Open()
	if err := other.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer other.Stop(context.Background())
	there, here := clientOf(t, other), clientOf(t, member)
	if _, err := there.Put(t.Context(), "/a", "b"); err != nil {
		t.Fatal(err)
	}
	got, err := here.Get(t.Context(), "/a")
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "b" {
		t.Errorf("read %v, %v, want what the other wrote", got, err)
	}
	stop()
	http.DefaultClient.CloseIdleConnections()
	if conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(address, "http://")); err == nil {
		conn.Close()
		t.Error("it still listens after it was stopped")
	}
}

func clientOf(t *testing.T, s controlplane.Backend) *clientv3.Client {
	t.Helper()
	c, err := s.Client()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEmbeddedListensAtURLs(t *testing.T) {
	for name, tc := range map[string]struct{ reason, listen string }{
		"NoScheme": {"an address alone is no URL", "127.0.0.1:2379"},
		"TLS":      {"there is no certificate to listen with", "https://127.0.0.1:2379"},
		"NoPort":   {"which port is not said", "http://127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := Embedded{Dir: t.TempDir(), Listen: []string{tc.listen}}.Open()
			if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "want http://HOST:PORT") {
				t.Errorf("%s: %v, want an error that says how", tc.reason, err)
			}
			_ = s.Stop(context.Background())
		})
	}
}
