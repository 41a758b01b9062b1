package examples

import (
	"bytes"
	"context"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// TestExamplesSayReady looks at everything that the examples print when they start and
// stop: programs that configure no log.
func TestExamplesSayReady(t *testing.T) {
	t.Parallel()
	ready := regexp.MustCompile(`(?m)^[0-9/]+ [0-9:]+ INFO ready server=\S+ ms=[0-9]+( address=\S+)?$`)
	for _, name := range []string{"minimal", "embedded", "typed"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := prepare(t)
			s.start(name)
			for begun := time.Now(); !ready.MatchString(s.out.String()) && time.Since(begun) < patience; {
				time.Sleep(10 * time.Millisecond)
			}
			s.stop()
			var logged []string
			for line := range strings.Lines(s.out.String()) {
				if !strings.HasPrefix(line, name+": ") { // what the example itself prints
					logged = append(logged, line)
				}
			}
			if len(logged) != 1 || !ready.MatchString(logged[0]) {
				t.Errorf("%d lines, want one that says ready:\n%s", len(logged), strings.Join(logged, ""))
			}
		})
	}
}

// ownKlog is a program that logs with klog and has not configured it.
func ownKlog() {
	klog.Info("own information")
	s, err := controlplane.New("own-klog").Listen("127.0.0.1:0").Storage(memory.Store{}).
		With(authn.Admin{}, core.Namespaces{}, crd.Definitions{}).Build()
	if err != nil {
		klog.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	<-s.Ready()
	klog.InfoS("own information", "in", "main")
	klog.Background().Info("own information")
	klog.Warning("own warning")
	klog.Error("own error")
	cancel()
	if err := <-done; err != nil {
		klog.Fatal(err)
	}
	klog.Fatal("own end")
}

// TestProgramKeepsItsKlog: what a program logs with klog appears as without a server.
func TestProgramKeepsItsKlog(t *testing.T) {
	t.Parallel()
	program := exec.Command("own-klog")
	var out bytes.Buffer
	program.Stdout, program.Stderr = &out, &out
	if err := program.Run(); program.ProcessState == nil || program.ProcessState.ExitCode() != 255 {
		t.Fatalf("%v, want the exit code of klog.Fatal\n%s", err, &out)
	}
	text, _, _ := strings.Cut(out.String(), "goroutine ") // the stacks of the end
	var got []string
	for line := range strings.Lines(text) {
		_, own, found := strings.Cut(line, "] ")
		if !found {
			_, own, _ = strings.Cut(line, " INFO ")
			own, _, _ = strings.Cut(own, " server=")
		}
		got = append(got, line[:1]+" "+strings.TrimSpace(own))
	}
	want := []string{
		"I own information", "2 ready", `I "own information" in="main"`, `I "own information"`, "W own warning", "E own error", "F own end",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nof\n%s", strings.Join(got, "\n"), &out)
	}
}
