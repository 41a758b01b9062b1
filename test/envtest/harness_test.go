package envtest

import (
	"bytes"
	"context"
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
	os.Exit(run(m))
}

func run(m *testing.M) int {
	log.SetLogger(logr.Discard())
	dir, err := os.MkdirTemp("", "sailplane-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	assets, err := install(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for name, value := range map[string]string{
		"KUBEBUILDER_ASSETS": assets,
		// By default each process has 20 s.
		"KUBEBUILDER_CONTROLPLANE_START_TIMEOUT": patience.String(),
		"KUBEBUILDER_CONTROLPLANE_STOP_TIMEOUT":  patience.String(),
	} {
		if err := os.Setenv(name, value); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return m.Run()
}

// install builds the program and has it write the binaries, as a user does.
func install(dir string) (string, error) {
	sailplane, err := program.Sailplane(context.Background(), dir)
	if err != nil {
		return "", err
	}
	kubectl, err := program.Kubectl(context.Background(), dir)
	if err != nil {
		return "", err
	}
	var stderr bytes.Buffer
	command := exec.Command(sailplane, "envtest", "install", "--dir", filepath.Join(dir, "assets"), "--kubectl", kubectl)
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
