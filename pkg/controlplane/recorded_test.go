package controlplane_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/middleware"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// diary is an audit back end that knows whether it was shut down.
type diary struct {
	mu             sync.Mutex
	closed         bool
	written, after int
}

func (*diary) Run(<-chan struct{}) error { return nil }
func (*diary) String() string            { return "diary" }

func (d *diary) Shutdown() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
}

func (d *diary) ProcessEvents(events ...*auditinternal.Event) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range events {
		if e.RequestURI == "/hold" && e.Stage == auditinternal.StageResponseComplete {
			d.written++
			if d.closed {
				d.after++
			}
		}
	}
	return true
}

// TestLastEvents stops a server while the handler of a request runs whose client has
// given up: its event comes before the audit log is closed.
func TestLastEvents(t *testing.T) {
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
	d := &diary{}
	audited := controlplane.PartFunc(func(p *controlplane.Plan) error {
		p.Audit("diary", d, policy.NewFakePolicyRuleEvaluator(auditinternal.LevelMetadata, nil))
		return nil
	})
	s, err := controlplane.New(t.Name()).Storage(memory.Store{}).With(core.Namespaces{}, audited, middleware.Innermost("hold", hold)).Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	select {
	case <-s.Ready():
	case err := <-done:
		t.Fatalf("Run: %v", err)
	}
	client, err := rest.HTTPClientFor(s.ClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	get := func(ctx context.Context, path string) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.ClientConfig().Host+path, http.NoBody)
		if err != nil {
			return err
		}
		answer, err := client.Do(r)
		if err == nil {
			err = answer.Body.Close()
		}
		return err
	}
	given, giveUp := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	go func() { answered <- get(given, "/hold") }()
	<-entered
	giveUp()
	if err := <-answered; !errors.Is(err, context.Canceled) {
		t.Errorf("the request that was given up: %v", err)
	}
	cancel()
	// The audit log is closed right after the server's own clients are refused.
	for get(t.Context(), "/livez") == nil {
		time.Sleep(time.Millisecond)
	}
	close(release)
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.written != 1 || d.after != 0 {
		t.Errorf("got %d events, %d of them when the log was closed: want 1 before", d.written, d.after)
	}
}
