package kube_test

import (
	"context"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/leaktest"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

func TestMain(m *testing.M) {
	os.Exit(leaktest.Run(m))
}

// serve runs a server with parts until the test ends.
func serve(t *testing.T, parts ...controlplane.Part) *rest.Config {
	t.Helper()
	server, err := controlplane.New("kube-test").Storage(memory.Store{}).With(parts...).Build()
	if err != nil {
		t.Fatalf("build: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	select {
	case <-server.Ready():
	case err := <-done:
		done <- nil
		t.Fatalf("run: %v", err)
	case <-time.After(2 * time.Minute):
		t.Fatal("the server is not ready after two minutes")
	}
	config := server.ClientConfig()
	config.QPS = -1
	return config
}
