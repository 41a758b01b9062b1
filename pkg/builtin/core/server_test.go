package core_test

import (
	"context"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// patience is how long anything may take before it counts as never.
const patience = 2 * time.Minute

// serve runs a server with namespaces that nobody removes, configmaps, secrets and
// more parts until the test ends.
func serve(t *testing.T, more ...controlplane.Part) *kubernetes.Clientset {
	t.Helper()
	return run(t, append(more, core.Namespaces{KeepDeleted: true}, core.ConfigMaps{}, core.Secrets{})...)
}

func run(t *testing.T, parts ...controlplane.Part) *kubernetes.Clientset {
	t.Helper()
	server, err := controlplane.New("core-test").Storage(memory.Store{}).With(parts...).Build()
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
	case <-time.After(patience):
		t.Fatalf("the server is not ready after %v", patience)
	}
	config := server.ClientConfig()
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
