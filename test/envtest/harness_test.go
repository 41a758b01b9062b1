package envtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sailplane-dev/sailplane/test/program"
)

// patience is how long is waited for what takes milliseconds, on a machine busy with all tests at once.
const patience = 2 * time.Minute

// TestMain has the tests run with the installed binaries, and kubectl.
func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(program.Tests{M: m, Build: func(ctx context.Context, dir string) error {
		assets, err := install(ctx, dir)
		return errors.Join(
			err, os.Setenv("KUBEBUILDER_ASSETS", assets),
			// By default each process has 20 s.
			os.Setenv("KUBEBUILDER_CONTROLPLANE_START_TIMEOUT", patience.String()),
			os.Setenv("KUBEBUILDER_CONTROLPLANE_STOP_TIMEOUT", patience.String()),
		)
	}}.Run())
}

// install builds the program and has it write the binaries, as a user does.
func install(ctx context.Context, dir string) (string, error) {
	sailplane, err := program.Sailplane(ctx, dir)
	if err != nil {
		return "", err
	}
	kubectl, err := program.Kubectl(ctx, dir)
	if err != nil {
		return "", err
	}
	var stderr bytes.Buffer
	command := exec.CommandContext(ctx, sailplane, "envtest", "install", "--dir", filepath.Join(dir, "assets"), "--kubectl", kubectl)
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("sailplane envtest install: %w\n%s", err, &stderr)
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}

// start starts an environment that the test stops.
func start(t *testing.T, env *envtest.Environment) (*rest.Config, client.WithWatch) {
	t.Helper()
	config, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	return config, clientOf(t, config)
}

func clientOf(t *testing.T, config *rest.Config) client.WithWatch {
	t.Helper()
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// eventually waits until what is asked is true, or fails with what stood in the way.
func eventually(t *testing.T, what string, ask func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		err := ask(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not after %v: %v", what, patience, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// output is what a process writes, which a test reads.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}
