package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-logr/logr"
)

// objects are the JSON objects of a log, one a line.
func objects(t *testing.T, log *bytes.Buffer) []map[string]any {
	t.Helper()
	var all []map[string]any
	for line := range strings.Lines(log.String()) {
		var one map[string]any
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		all = append(all, one)
	}
	return all
}

func TestProblems(t *testing.T) {
	t.Parallel()
	log := &bytes.Buffer{}
	l := logr.FromSlogHandler(Problems(slog.NewJSONHandler(log, nil))).WithValues("server", "apples").WithName("controller")
	l.Info("information")
	l.V(2).Info("details")
	l.Error(errors.New("first\nsecond"), "it failed", "path", strings.Repeat("x", 1<<20), "object", map[string]string{"long": strings.Repeat("y", 1<<20)})
	l.Error(nil, strings.Repeat("z", 1<<20))
	lines := objects(t, log)
	if len(lines) != 2 {
		t.Fatalf("%d lines, want those of the two errors: %.500v", len(lines), lines)
	}
	if lines[0]["err"] != "first\nsecond" || lines[0]["server"] != "apples" {
		t.Errorf("err is %q and server %q", lines[0]["err"], lines[0]["server"])
	}
	if n := log.Len(); n > 2*maxValue+maxMessage+1000 {
		t.Errorf("%d bytes of values that clients choose", n)
	}
	if path := fmt.Sprint(lines[0]["path"]); !strings.HasSuffix(path, "x... (1048576 bytes)") {
		t.Errorf("path is %.1000q, want its size", path)
	}
}

func TestProblemsKeepTheStackOfAPanic(t *testing.T) {
	t.Parallel()
	log := &bytes.Buffer{}
	stack := strings.Repeat("frame\n", 1000)
	logr.FromSlogHandler(Problems(slog.NewJSONHandler(log, nil))).Error(nil, "Observed a panic", "panic", "boom", "stacktrace", stack)
	if lines := objects(t, log); len(lines) != 1 || lines[0]["stacktrace"] != stack {
		t.Errorf("got %.1000v", lines)
	}
}

func TestVerboseGetsEverything(t *testing.T) {
	t.Parallel()
	log := &bytes.Buffer{}
	handler := slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.Level(-2)})
	if !Verbose(context.Background(), handler) {
		t.Error("V(2) is not more than information")
	}
	l := logr.FromSlogHandler(Problems(handler)).WithValues("request", strings.Repeat("y", 10*maxValue))
	l.Info("information", "value", strings.Repeat("x", 10*maxValue))
	l.V(2).Info("details")
	l.V(3).Info("too much")
	l.Error(errors.New("Unable to sync caches for X"), unhandled)
	if lines := objects(t, log); len(lines) != 3 {
		t.Errorf("%d lines, want all but V(3): %.1000v", len(lines), lines)
	}
	if n := log.Len(); n > 3*(2*maxValue+500) {
		t.Errorf("%d bytes of values that clients choose", n)
	}
}

// TestProblemsCutTheValueOfAPanic: clients may have chosen it; the stack follows it.
func TestProblemsCutTheValueOfAPanic(t *testing.T) {
	t.Parallel()
	log := &bytes.Buffer{}
	value := strings.Repeat("x", 16<<10) + "\ngoroutine 1 [running]:\nmain.main()\n"
	logr.FromSlogHandler(Problems(slog.NewJSONHandler(log, nil))).Error(nil, "Observed a panic", "panic", value)
	if lines := objects(t, log); log.Len() > maxValue+300 || !strings.HasSuffix(fmt.Sprint(lines[0]["panic"]), "main.main()\n") {
		t.Errorf("got %.1000v", lines)
	}
}

// TestContentsOfRequests: who asks for them has them whole.
func TestContentsOfRequests(t *testing.T) {
	t.Parallel()
	log := &bytes.Buffer{}
	long := strings.Repeat("x", 10*maxMessage)
	l := logr.FromSlogHandler(Problems(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.Level(-8)}))).WithValues("request", long)
	l.V(8).Info("body", "value", long)
	if lines := objects(t, log); len(lines) != 1 || lines[0]["value"] != long || lines[0]["request"] != long {
		t.Errorf("want all: %.1000v", lines)
	}
}

// TestValuesOfALogger: what a logger has of a request is bounded as well.
func TestValuesOfALogger(t *testing.T) {
	t.Parallel()
	log := &bytes.Buffer{}
	long := strings.Repeat("x", 1<<20)
	l := slog.New(Problems(slog.NewJSONHandler(log, nil))).With("request", long, slog.Group("group", "path", long))
	l.Error("it failed", slog.Group("inner", "path", long))
	if n := log.Len(); n > 3*maxValue+500 {
		t.Errorf("%d bytes of values that clients choose", n)
	}
}

// TestLeaseOfAStop: a stop ends the request for a Lease that is under way, which is no problem.
func TestLeaseOfAStop(t *testing.T) {
	t.Parallel()
	log := &bytes.Buffer{}
	l := logr.FromSlogHandler(Problems(slog.NewJSONHandler(log, nil)))
	l.Error(fmt.Errorf("get: %w", context.Canceled), "Error retrieving lease lock", "lock", "kube-system/quota")
	l.Error(fmt.Errorf("get: %w", context.DeadlineExceeded), "Error retrieving lease lock", "lock", "kube-system/quota")
	if lines := objects(t, log); len(lines) != 1 || lines[0]["err"] != "get: context deadline exceeded" {
		t.Errorf("want the line of the request that took too long, got\n%v", lines)
	}
}
