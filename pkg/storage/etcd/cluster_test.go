package etcd

import (
	"bytes"
	"crypto/tls"
	"net/url"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/storagetest"
)

// patience bounds every wait of a test. It is only reached by a failure.
const patience = 30 * time.Second

// nobody is where nobody listens: a port that nobody is given.
const nobody = "http://127.0.0.1:1"

// newCluster starts an etcd that runs until the test ends, on a port picked by the kernel.
func newCluster(t testing.TB) controlplane.Storage {
	return Cluster{Endpoints: []string{serve(t, t.TempDir())}, DialTimeout: patience}
}

// serve runs an etcd until the test ends and returns its client URL.
func serve(t testing.TB, dir string) string { return serveAs(t, dir, "http") }

// awaitStreams waits until no etcd of this process serves a watch: with TLS its
// stop does not wait for them, and they panic when they read what is closed.
func awaitStreams(t testing.TB) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		var stacks bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&stacks, 2); err != nil {
			t.Error(err)
			return
		}
		if !bytes.Contains(stacks.Bytes(), []byte("v3rpc.(*serverWatchStream)")) {
			return
		}
		if time.Now().After(end) {
			t.Errorf("watches are still served after %v", patience)
			return
		}
	}
}

// serveAs runs an etcd that speaks http, or https with a certificate it makes
// in dir.
func serveAs(t testing.TB, dir, scheme string) string {
	t.Helper()
	c := embed.NewConfig()
	c.Dir = dir
	c.UnsafeNoFsync = true
	c.TickMs, c.ElectionMs = 10, 50
	c.ClientAutoTLS, c.SelfSignedCertValidity = scheme == "https", 1
	local := url.URL{Scheme: scheme, Host: "127.0.0.1:0"}
	c.ListenPeerUrls = nil
	c.AdvertisePeerUrls = []url.URL{local}
	c.ListenClientUrls = []url.URL{local}
	c.AdvertiseClientUrls = []url.URL{local}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.EnableGRPCGateway = false
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	e, err := embed.StartEtcd(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		awaitStreams(t)
		e.Close()
	})
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(patience):
		t.Fatal("etcd does not start")
	}
	return scheme + "://" + e.Clients[0].Addr().String()
}

func TestCluster(t *testing.T) { storagetest.Run(t, newCluster) }

func BenchmarkClusterStart(b *testing.B)  { storagetest.BenchmarkStart(b, newCluster) }
func BenchmarkClusterCreate(b *testing.B) { storagetest.BenchmarkCreate(b, newCluster) }

func TestClusterOutOfReach(t *testing.T) {
	for name, c := range map[string]struct {
		cluster Cluster
		want    string
		reason  string
	}{
		"nobody": {
			Cluster{Endpoints: []string{nobody}, DialTimeout: 200 * time.Millisecond},
			"connection refused", "the error tells what a connection meets",
		},
		"not etcd's": {
			Cluster{Endpoints: []string{"https" + strings.TrimPrefix(serve(t, t.TempDir()), "http")}, DialTimeout: 200 * time.Millisecond},
			"certificates", "the error says what to look at",
		},
		"no such file": {
			Cluster{Endpoints: []string{nobody}, CAFile: "missing.pem"},
			"missing.pem", "the error names the file",
		},
		"half a pair": {
			Cluster{Endpoints: []string{nobody}, CertFile: "client.pem"},
			"KeyFile", "a certificate without a key is of no use",
		},
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			failsToStart(t, c.cluster, c.want, c.reason)
			if waited := time.Since(begin); waited > patience {
				t.Errorf("the error took %v", waited)
			}
		})
	}
}

// failsToStart wants an error. What a connection meets is looked for during a
// second, in which a busy machine may not find it: then it is looked for again.
func failsToStart(t *testing.T, c Cluster, want, reason string) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		s := c.Open()
		err := s.Start(t.Context())
		t.Log(err)
		must(t, s.Stop(t.Context()))
		switch {
		case err != nil && strings.Contains(err.Error(), want):
			return
		case err == nil || time.Now().After(end):
			t.Fatalf("%s: got %v, want an error with %q", reason, err, want)
		}
	}
}

func TestClusterWithCertificates(t *testing.T) {
	dir := t.TempDir()
	address := serveAs(t, dir, "https")
	certificate := filepath.Join(dir, "fixtures", "client", "cert.pem")
	for name, c := range map[string]struct {
		cluster Cluster
		want    string
		reason  string
	}{
		"trusted": {
			Cluster{Endpoints: []string{address}, CAFile: certificate, DialTimeout: patience},
			"", "the certificate of the member is one to trust",
		},
		"with its own": {
			Cluster{
				Endpoints: []string{address}, CAFile: certificate, CertFile: certificate,
				KeyFile: filepath.Join(dir, "fixtures", "client", "key.pem"), DialTimeout: patience,
			},
			"", "a client may have a certificate too",
		},
		"unknown": {
			Cluster{Endpoints: []string{address}, TLS: &tls.Config{}, DialTimeout: 200 * time.Millisecond},
			"x509", "the error says why the member is not trusted",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.want != "" {
				failsToStart(t, c.cluster, c.want, c.reason)
				return
			}
			s := c.cluster.Open()
			if err := s.Start(t.Context()); err != nil {
				t.Errorf("%s: %v", c.reason, err)
			}
			must(t, s.Stop(t.Context()))
		})
	}
}

func TestTooOld(t *testing.T) {
	for v, want := range map[string]bool{
		"3.3.0": true, "3.4.30": true, "3.4.31": false, "3.5.0": true, "3.5.12": true, "3.5.13": false, "3.6.0": false,
	} {
		if got := tooOld(version.MustParseSemantic(v)); got != want {
			t.Errorf("%s: got %v, want %v", v, got, want)
		}
	}
}
