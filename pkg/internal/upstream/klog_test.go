package upstream

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/klog/v2"
)

// written has klog write into a buffer, through an output, as long as the test runs.
func written(t *testing.T) *bytes.Buffer {
	t.Helper()
	t.Cleanup(klog.CaptureState().Restore)
	log := &bytes.Buffer{}
	set := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(set)
	if err := set.Set("stderrthreshold", "FATAL"); err != nil {
		t.Fatal(err)
	}
	klog.SetOutput(io.Discard)
	klog.SetOutputBySeverity("INFO", &output{to: func() io.Writer { return log }})
	klog.LogToStderr(false)
	return log
}

func TestWebhookThatFailsOpenIsLoggedOnce(t *testing.T) {
	fails := func(name string, reason error) {
		utilruntime.HandleError(&webhook.ErrCallingWebhook{WebhookName: name, Reason: reason})
	}
	down := errors.New(`Post "https://127.0.0.1:1/?timeout=10s": dial tcp: connection refused`)
	storm := func() {
		for range 100 {
			fails("a.example.com", down)
			fails("gone.example.com", fmt.Errorf("ask: %w", context.Canceled))
		}
		fails("b.example.com", down)
	}
	t.Run("klog", func(t *testing.T) {
		log := written(t)
		storm()
		text := log.String()
		if strings.Count(text, "\n") != 2 || !strings.Contains(text, "a.example.com") || !strings.Contains(text, "b.example.com") {
			t.Errorf("want a line for a and one for b, got\n%s", text)
		}
	})
	t.Run("slog", func(t *testing.T) {
		t.Cleanup(klog.CaptureState().Restore)
		log := &bytes.Buffer{}
		klog.SetSlogLogger(slog.New(Problems(slog.NewJSONHandler(log, nil))))
		storm()
		lines := objects(t, log)
		if len(lines) != 2 || !strings.Contains(fmt.Sprint(lines[0]["err"]), "a.example.com") {
			t.Errorf("want a line for a and one for b, got\n%v", lines)
		}
	})
	t.Run("bounded", func(t *testing.T) {
		var c chatter
		printed := 0
		for range 2 {
			for i := range 10 * maxOpen {
				if !c.has(fmt.Sprintf("failed calling webhook %q: down", fmt.Sprintf("%d.example.com", i))) {
					printed++
				}
			}
		}
		if printed != maxOpen || len(c.open) != maxOpen {
			t.Errorf("%d lines of %d webhooks, want %d", printed, len(c.open), maxOpen)
		}
	})
}

func TestConsequencesAreNotLogged(t *testing.T) {
	log := written(t)
	for _, text := range []string{
		"Unable to sync caches for LocalAvailability controller",
		"apiserver was unable to write a JSON response: http: Handler timeout",
		`apiserver received an error that is not an metav1.Status: &errors.errorString{s:"http: Handler timeout"}: http: Handler timeout`,
		"FinishRequest: post-timeout activity - time-elapsed: 1ms, panicked: false, err: <nil>, panic-reason: <nil>",
		`failed to set a status.condition for FlowSchema x: Patch "http://loopback/x": loopback: the server is stopped`,
	} {
		utilruntime.HandleError(errors.New(text))
	}
	utilruntime.HandleErrorWithContext(t.Context(), nil, postTimeout, "method", "GET", "result", nil)
	utilruntime.HandleErrorWithContext(t.Context(), nil, cutOff, "method", "GET", "URI", "/")
	if log.Len() > 0 {
		t.Errorf("logged:\n%s", log)
	}
	utilruntime.HandleErrorWithContext(t.Context(), nil, postTimeout, "method", "GET", "result", any("boom"))
	if !strings.Contains(log.String(), "boom") {
		t.Error("a panic after the time of a request is not logged")
	}
	for _, text := range []string{
		"FinishRequest: post-timeout activity - time-elapsed: 1ms, panicked: true, err: <nil>, panic-reason: boom",
		"apiserver was unable to write a JSON response: no space left on device",
		"the message of a client: Unable to sync caches",
	} {
		log.Reset()
		if utilruntime.HandleError(errors.New(text)); !strings.Contains(log.String(), text) {
			t.Errorf("%s: not logged", text)
		}
	}
	log.Reset()
	if klog.ErrorS(nil, "apiserver panic'd", "method", "GET"); !strings.Contains(log.String(), "panic'd") {
		t.Error("a structured error is not logged")
	}
}

func TestLinesOfTheServerAreLeftOut(t *testing.T) {
	log := written(t)
	klog.Info("from the library") // this package is below pkg
	klog.Background().Info("from the library")
	klog.Warning("from the library")
	if log.Len() > 0 {
		t.Errorf("logged:\n%s", log)
	}
	for function, want := range map[string]bool{
		"k8s.io/apiserver/pkg/server.(*GenericAPIServer).X": true, "k8s.io/apiserverless/pkg.X": false, "main.main": false,
	} {
		if got := below(function, "k8s.io/apiserver"); got != want {
			t.Errorf("%s: %v, want %v", function, got, want)
		}
	}
}

// TestConfiguredKlogIsLeftAlone: klog belongs to the program.
func TestConfiguredKlogIsLeftAlone(t *testing.T) {
	set := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(set)
	if configured(set) {
		t.Fatal("a program that configured nothing counts as one that did")
	}
	ways := map[string]func(){
		"a logger":            func() { klog.SetLogger(klog.Background()) },
		"a contextual logger": func() { klog.SetSlogLogger(slog.Default()) },
		"an output":           func() { klog.LogToStderr(false) },
		"--v":                 func() { _ = set.Set("v", "2") },
		"--vmodule":           func() { _ = set.Set("vmodule", "etcd=3") },
	}
	for name, configure := range ways {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(klog.CaptureState().Restore)
			if configure(); !configured(set) {
				t.Error("counts as one that configured nothing")
			}
		})
	}
}

// TestLongLinesAreCut: clients choose much of what an error says.
func TestLongLinesAreCut(t *testing.T) {
	t.Cleanup(klog.CaptureState().Restore)
	log := written(t)
	klog.ErrorS(errors.New("no selector"), "Couldn't parse request", "request", strings.Repeat("!", 16<<10))
	if n := log.Len(); n > maxMessage+100 || n < maxMessage || !strings.HasSuffix(log.String(), " bytes)\n") {
		t.Errorf("%d bytes, want about %d that say how many there were: %s", n, maxMessage, log)
	}
}
