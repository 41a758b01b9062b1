package controlplane_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

// logged is what was logged.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *logged) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// lines are the JSON objects that were logged, one a line.
func (l *logged) lines(t *testing.T) []map[string]any {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []map[string]any
	for line := range strings.Lines(l.text.String()) {
		var one map[string]any
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		all = append(all, one)
	}
	return all
}

func TestLogIsOneLine(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "state.db")
	cases := map[string]controlplane.Storage{
		"memory": memory.Store{}, "sqlite, first start": sqlite.File{Path: file}, "sqlite, second start": sqlite.File{Path: file},
	}
	for _, name := range []string{"memory", "sqlite, first start", "sqlite, second start"} {
		t.Run(name, func(t *testing.T) {
			log := &logged{}
			s, err := controlplane.New("apples").Listen("127.0.0.1:0").Storage(cases[name]).Log(slog.New(slog.NewJSONHandler(log, nil))).
				With(authn.Admin{}, core.Namespaces{}, core.ConfigMaps{}, crd.Definitions{}, aggregator.APIServices{}).Build()
			if err != nil {
				t.Fatal(err)
			}
			stop := run(t, s)
			_, err = client(t, s.ClientConfig()).CoreV1().ConfigMaps("default").Create(t.Context(), configMap("a"), metav1.CreateOptions{})
			if err != nil && name != "sqlite, second start" {
				t.Error(err)
			}
			stop()
			lines := log.lines(t)
			if len(lines) != 1 {
				t.Fatalf("%d lines, want one: %v", len(lines), lines)
			}
			if ms, ok := lines[0]["ms"].(float64); !ok || ms < 0 {
				t.Errorf("ms is %v", lines[0]["ms"])
			}
			delete(lines[0], "ms")
			delete(lines[0], "time")
			want := map[string]any{"level": "INFO", "msg": "ready", "server": "apples", "address": s.Address().String()}
			if diff := gocmp.Diff(want, lines[0]); diff != "" {
				t.Errorf("the line (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLogHasMoreWhenAskedFor(t *testing.T) {
	t.Parallel()
	log := &logged{}
	handler := slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.Level(-1)})
	s := build(t, core.Namespaces{})
	// Without Builder.Log, the logger is that of the context.
	ctx, cancel := context.WithCancel(logr.NewContextWithSlogLogger(t.Context(), slog.New(handler)))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	select {
	case <-s.Ready():
	case err := <-done:
		t.Fatal(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	phases := 0
	for _, line := range log.lines(t) {
		if line["msg"] == "Started" && line["phase"] != "" && line["server"] == t.Name() {
			phases++
		}
	}
	if phases == 0 {
		t.Errorf("no line says what was started: %v", log.lines(t))
	}
}

func TestFailedStartLogsNothing(t *testing.T) {
	t.Parallel()
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		listen  string
		storage controlplane.Storage
		admin   authn.Admin
		want    string
	}{
		"a port in use":      {listen: taken.Addr().String(), storage: memory.Store{}, want: "the port is in use"},
		"a bad storage path": {storage: sqlite.File{Path: filepath.Join(file, "state.db")}, want: "is a file; choose another path"},
		"no place for keys":  {storage: memory.Store{}, admin: authn.Admin{Dir: filepath.Join(file, "pki")}, want: "not a directory"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := &logged{}
			err := controlplane.New("apples").Listen(cmp.Or(c.listen, "127.0.0.1:0")).Storage(c.storage).
				Log(slog.New(slog.NewJSONHandler(log, nil))).With(c.admin, core.Namespaces{}).Run(t.Context())
			if err == nil || strings.Count(err.Error(), c.want) != 1 {
				t.Errorf("Run: %v, want %q once", err, c.want)
			}
			if lines := log.lines(t); len(lines) != 0 {
				t.Errorf("logged before the error: %v", lines)
			}
		})
	}
}
