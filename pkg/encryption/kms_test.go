package encryption_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kmsapi "k8s.io/kms/apis/v2"
	"k8s.io/kms/pkg/service"
)

// plugin is a KMS v2 plugin that hides keys as badly as a test allows: it turns
// every bit.
type plugin struct {
	mu    sync.Mutex
	calls map[string]int
}

func (p *plugin) count(call string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[call]
}

func (p *plugin) called(call string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[call]++
}

const keyID = "key-1"

func flip(b []byte) []byte {
	out := make([]byte, len(b))
	for i := range b {
		out[i] = ^b[i]
	}
	return out
}

// Status implements service.Service.
func (p *plugin) Status(context.Context) (*service.StatusResponse, error) {
	p.called("status")
	return &service.StatusResponse{Version: "v2", Healthz: "ok", KeyID: keyID}, nil
}

// Encrypt implements service.Service.
func (p *plugin) Encrypt(_ context.Context, _ string, data []byte) (*service.EncryptResponse, error) {
	p.called("encrypt")
	return &service.EncryptResponse{Ciphertext: flip(data), KeyID: keyID, Annotations: map[string][]byte{"test.example.com": []byte("1")}}, nil
}

// Decrypt implements service.Service.
func (p *plugin) Decrypt(_ context.Context, _ string, r *service.DecryptRequest) ([]byte, error) {
	p.called("decrypt")
	if r.KeyID != keyID || string(r.Annotations["test.example.com"]) != "1" {
		return nil, errors.New("not a key of this plugin")
	}
	return flip(r.Ciphertext), nil
}

// serve serves the plugin at a unix socket until stop.
func (p *plugin) serve(t *testing.T, socket string) (stop func()) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	kmsapi.RegisterKeyManagementServiceServer(s, service.NewGRPCService(socket, time.Second, p))
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	stop = sync.OnceFunc(func() {
		s.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// socket is a path that is short enough for one.
func socket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kms")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// kms is the provider at a socket, which is waited for as long as timeout says.
func kms(socket, timeout string) string {
	return fmt.Sprintf("kms: {apiVersion: v2, name: vault, endpoint: 'unix://%s', timeout: %s}", socket, timeout)
}

// patient is a timeout for a service that is there, and brief for one that is not.
const patient, brief = "30s", "1s"

// TestKMS has a key service encrypt, and another server of the same storage
// decrypt.
func TestKMS(t *testing.T) {
	storage, p, at := keep(t), &plugin{calls: map[string]int{}}, socket(t)
	p.serve(t, at)
	file := write(t, "", rule(`secrets, "*.example.com"`, kms(at, patient)))
	s := start(t, storage, file)
	resources := map[string]string{"secrets": "/secrets/", "gadgets": "/example.com/gadgets/"}
	for resource, path := range resources {
		s.create("default", resource, "one", marker)
		value := storage.stored(t, path)
		if bytes.Contains(value, []byte(marker)) || !bytes.HasPrefix(value, []byte("k8s:enc:kms:v2:vault:")) {
			t.Errorf("%s is not encrypted: %.40q", resource, value)
		}
	}
	if body, err := s.path("/readyz/kms-providers"); err != nil || body != "ok" {
		t.Errorf("/readyz/kms-providers: %q, %v", body, err)
	}
	s.stop()
	s = start(t, storage, file)
	for resource := range resources {
		if got := s.text("default", resource, "one"); got != marker {
			t.Errorf("%s: read %q by another server", resource, got)
		}
	}
	if p.count("encrypt") == 0 || p.count("decrypt") == 0 || p.count("status") < 2 {
		t.Error("the plugin was not asked to encrypt, decrypt and tell its status by both servers")
	}
}

// TestKMSAway starts without the key service, which comes later: the server is
// live but not ready, refuses what it would have to encrypt or decrypt, and
// serves the rest.
func TestKMSAway(t *testing.T) {
	storage, p, at := keep(t), &plugin{calls: map[string]int{}}, socket(t)
	stop := p.serve(t, at)
	s := start(t, storage, write(t, "", rule("secrets", kms(at, patient))))
	for i := range 5 {
		s.create("default", "secrets", fmt.Sprint("old-", i), marker)
	}
	s.stop()
	stop()

	s = start(t, storage, write(t, "", rule("secrets", kms(at, brief))))
	if _, err := s.path("/livez"); err != nil {
		t.Errorf("/livez: %v, want a server that nobody restarts", err)
	}
	for _, path := range []string{"/readyz", "/healthz"} {
		if body, err := s.path(path); err == nil || !strings.Contains(body, "[-]kms-providers") {
			t.Errorf("%s: %v, %s, want kms-providers to fail", path, err, body)
		}
	}
	s.create("default", "configmaps", "plain", "")
	u, _ := s.in("default", "configmaps").Get(t.Context(), "plain", metav1.GetOptions{})
	u.SetKind("Secret")
	u.SetResourceVersion("")
	u.SetUID("")
	if _, err := s.in("default", "secrets").Create(t.Context(), u, metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), "encrypt secrets") {
		t.Errorf("create a Secret: %v, want an error that names secrets", err)
	}
	if _, err := s.in("default", "secrets").Get(t.Context(), "old-0", metav1.GetOptions{}); err == nil || !strings.Contains(err.Error(), "decrypt secrets") {
		t.Errorf("get a Secret: %v, want an error that names secrets", err)
	}

	p.serve(t, at)
	until(t, "the server is ready", func() bool { _, err := s.path("/readyz"); return err == nil })
	until(t, "Secrets are read", func() bool {
		list, err := s.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 5
	})
	s.create("default", "secrets", "new", marker)
}
