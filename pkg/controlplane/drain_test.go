package controlplane_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/middleware"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// TestDrain stops a server in the middle of a request that does not end by itself.
func TestDrain(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}), make(chan struct{})
	hold := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/hold" {
				close(entered)
				<-release
			}
			next.ServeHTTP(w, r)
		})
	}
	s, err := controlplane.New(t.Name()).Storage(memory.Store{}).Drain(10*time.Millisecond).
		With(core.Namespaces{}, middleware.BeforeAuthentication("hold", hold)).Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done, answered := make(chan error, 1), make(chan struct{})
	go func() { done <- s.Run(ctx) }()
	select {
	case <-s.Ready():
	case err := <-done:
		t.Fatalf("Run: %v", err)
	}
	go func() {
		defer close(answered)
		s.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/hold", http.NoBody))
	}()
	<-entered
	cancel()
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "requests were still running") {
			t.Errorf("Run: %v, want an error that says that a request was cut off", err)
		}
	case <-time.After(30 * time.Second): // half of the default
		t.Error("Run waits for a request that may take 10 ms")
	}
	close(release)
	<-answered
}
