package lifecycle_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/pki"
	"github.com/sailplane-dev/sailplane/pkg/lifecycle"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// TestRootCAOfTheServer: without a bundle the server's own authority is published, in
// every plane, and again when it changes.
func TestRootCAOfTheServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	parts := []controlplane.Part{core.Namespaces{}, core.ConfigMaps{}, lifecycle.RootCA{}}
	s, err := controlplane.New("lifecycle").Listen("127.0.0.1:0").Storage(memory.Store{}).
		With(authn.Admin{Dir: dir}).With(parts...).Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	select {
	case <-s.Ready():
	case err := <-ended:
		ended <- nil
		t.Fatalf("start: %v", err)
	}
	more, err := s.Plane(ctx, "more", parts...)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "ca.crt")
	published := func(what string) {
		t.Helper()
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, config := range []*controlplane.Plane{nil, more} {
			clients := kubernetes.NewForConfigOrDie(s.ClientConfig())
			if config != nil {
				clients = kubernetes.NewForConfigOrDie(config.Config())
			}
			until(t, what, func() bool {
				found, err := clients.CoreV1().ConfigMaps("default").Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
				return err == nil && strings.TrimSpace(found.Data["ca.crt"]) == strings.TrimSpace(string(want))
			})
		}
	}
	published("the authority is published")
	next, err := pki.Dir(t.TempDir()).Load(ctx, pki.Request{})
	if err != nil {
		t.Fatal(err)
	}
	now, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(now, next.CA...), 0o600); err != nil {
		t.Fatal(err)
	}
	published("the next authority is published beside it")
}

// TestRootCAOfNobody: a server without an authority of its own says that it has none.
func TestRootCAOfNobody(t *testing.T) {
	t.Parallel()
	err := controlplane.New("lifecycle").Storage(memory.Store{}).
		With(core.Namespaces{}, core.ConfigMaps{}, lifecycle.RootCA{}).Run(t.Context())
	want := `part "lifecycle.RootCA": publish-kube-root-ca.crt: field Bundle: it is empty, and the server has no certificate authority of its own`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got error %v, want %s", err, want)
	}
}
