package serving_test

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/sailplane-dev/sailplane/pkg/internal/leaktest"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storage/serving"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

// serve runs a server until stop, or until the test ends, and returns its URL.
func serve(t *testing.T, s serving.Server) (url string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan string, 1), make(chan error, 1)
	s.Ready = func(url string) { ready <- url }
	go func() { done <- s.Run(ctx) }()
	stop = func() {
		if cancel(); done == nil {
			return
		}
		if err := <-done; err != nil {
			t.Errorf("stop: %v", err)
		}
		done = nil
	}
	select {
	case url = <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return url, stop
}

// connect returns an etcd client with the certificate of a folder, which may be empty.
func connect(t *testing.T, url, dir string) *clientv3.Client {
	t.Helper()
	c := clientv3.Config{Endpoints: []string{url}, Logger: zap.NewNop()}
	if dir != "" {
		in := func(name string) string { return filepath.Join(dir, name) }
		config, err := transport.TLSInfo{CertFile: in("admin.crt"), KeyFile: in("admin.key"), TrustedCAFile: in("ca.crt")}.ClientConfig()
		if err != nil {
			t.Fatal(err)
		}
		c.TLS = config
	}
	client, err := clientv3.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// TestRestart: what was written is there after a restart, also for a client that stays, and
// a stop does not wait for its watch. Only clients with the folder's certificate get in.
func TestRestart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "certificates")
	s := serving.Server{Storage: sqlite.File{Path: filepath.Join(t.TempDir(), "a.db")}, Listen: "127.0.0.1:0", CertDir: dir}
	url, stop := serve(t, s)
	c := connect(t, url, dir)
	first, err := c.Put(t.Context(), "/registry/a", "1")
	if err != nil {
		t.Fatal(err)
	}
	watch := c.Watch(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithRev(first.Header.Revision))
	if r := <-watch; len(r.Events) != 1 {
		t.Fatalf("the watch has %+v", r)
	}
	stranger := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13} //nolint:gosec // it is the server that has to verify
	conn, err := (&tls.Dialer{Config: stranger}).DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "https://"))
	if err == nil {
		_, err = conn.Read(make([]byte, 1)) // in TLS 1.3 a client learns of a refusal later
		conn.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("a client without a certificate: %v, want that one is required", err)
	}
	stop()
	s.Listen = strings.TrimPrefix(url, "https://")
	serve(t, s)
	if _, err := c.Put(t.Context(), "/registry/b", "2"); err != nil {
		t.Fatal(err)
	}
	if r := <-watch; len(r.Events) != 1 || string(r.Events[0].Kv.Key) != "/registry/b" {
		t.Errorf("the watch goes on with %+v, %v", r, r.Err())
	}
}

// TestSocket: a socket is its owner's, needs no certificates, and makes way if nobody serves it.
func TestSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "etcd.sock")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false) // as after a crash
	left.Close()
	s := serving.Server{Storage: memory.Store{}, Listen: "unix://" + path}
	url, _ := serve(t, s)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket has mode %v, %v, want 0600", info.Mode(), err)
	}
	if _, err := connect(t, url, "").Put(t.Context(), "a", "1"); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Run(ctx); err == nil || !strings.Contains(err.Error(), "another process serves it") {
		t.Errorf("a second one: %v, want it refused", err)
	}
}

// TestRefused: what is wrong is said before anything listens.
func TestRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		server serving.Server
		want   string
	}{
		"no storage":      {serving.Server{}, "there is none (Storage)"},
		"no certificates": {serving.Server{Storage: memory.Store{}, Listen: "127.0.0.1:0"}, "give it certificates"},
		"half": {
			serving.Server{Storage: memory.Store{}, Listen: "127.0.0.1:0", CertFile: "a.crt", KeyFile: "a.key"}, "give it certificates",
		},
		"both":     {serving.Server{Storage: memory.Store{}, CertDir: t.TempDir(), CertFile: "a.crt"}, "give one of both"},
		"no files": {serving.Server{Storage: memory.Store{}, CertFile: "a.crt", KeyFile: "a.key", ClientCAFile: "ca.crt"}, "a.crt"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := c.server.Run(ctx); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
