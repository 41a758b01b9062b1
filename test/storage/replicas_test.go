package storage

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/preset"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
)

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// TestReplicasLogOneLine starts a server on an empty etcd, and a second one beside it.
func TestReplicasLogOneLine(t *testing.T) {
	if testing.Short() {
		t.Skip("an etcd is compiled once, which takes minutes; run without -short")
	}
	endpoint := serve(t, build(t, "etcd37"), t.TempDir())
	logs := map[string]*lines{"first": {}, "second": {}}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, name := range []string{"first", "second"} {
		s, err := controlplane.New("replica").Log(slog.New(slog.NewTextHandler(logs[name], nil))).
			Storage(etcd.Cluster{Endpoints: []string{endpoint}, DialTimeout: patience}).With(preset.Standard(), authz.RBAC{}).Build()
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		running.Go(func() { done <- s.Run(ctx) })
		select {
		case <-s.Ready():
		case err := <-done:
			t.Fatalf("%s: %v", name, err)
		case <-time.After(patience):
			t.Fatalf("%s: not ready", name)
		}
	}
	stop()
	running.Wait()
	for name, log := range logs {
		if text := log.text.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "msg=ready server=replica") {
			t.Errorf("the %s server logged\n%swant one line that says ready", name, text)
		}
	}
}
