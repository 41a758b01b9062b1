package script

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

func TestMain(m *testing.M) {
	testscript.Main(&suite{m}, map[string]func(){"kubectl": kubectl, "pieces": servePieces})
}

// kubectl is cmd/kubectl of Kubernetes, which this binary is when it is called so.
func kubectl() {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}

// suite runs the tests with the binary "sailplane" on PATH. It is built rather
// than linked into the tests, to be what users run.
type suite struct{ m *testing.M }

func (s *suite) Run() int {
	dir, err := os.MkdirTemp("", "sailplane-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	name := "sailplane"
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	// The flags are those of the Makefile's tests: the build is shared with them.
	build := exec.Command("go", "build", "-pgo=off", "-o", filepath.Join(dir, name), "./cmd/sailplane")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build ./cmd/sailplane: %v\n%s", err, bytes.TrimSpace(out))
		return 1
	}
	if err := os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return s.m.Run()
}

// storages maps each storage's name to the value of --storage.
var storages = map[string]string{
	"memory": "memory",
	"sqlite": "sqlite:objects.db",
	"etcd":   "etcd:objects",
}

func TestAPI(t *testing.T) {
	t.Parallel()
	for name, storage := range storages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testscript.Run(t, params("api", storage))
		})
	}
}

func TestPersistent(t *testing.T) {
	t.Parallel()
	for name, storage := range storages {
		if name == "memory" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testscript.Run(t, params("persistent", storage))
		})
	}
}

func TestBinary(t *testing.T) {
	t.Parallel()
	testscript.Run(t, params("binary", "memory"))
}

func params(folder, storage string) testscript.Params {
	return testscript.Params{
		Dir:                 filepath.Join("testdata", folder),
		RequireExplicitExec: true,
		Setup:               func(e *testscript.Env) error { return setup(e, storage) },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"serve":      serve,
			"shutdown":   shutdown,
			"crash":      crash,
			"anonymous":  anonymous,
			"eventually": eventually,
			"each":       each,
			"keep":       keep,
			"fewer":      fewer,
		},
	}
}

func setup(e *testscript.Env, storage string) error {
	config, err := filepath.Abs(filepath.Join("..", "..", "config", "samples"))
	if err != nil {
		return err
	}
	e.Setenv("STORAGE", storage)
	e.Setenv("CONFIG", config)
	e.Setenv("KUBECONFIG", filepath.Join(e.WorkDir, "data", "admin.kubeconfig"))
	e.Setenv("HOME", e.WorkDir) // where kubectl keeps what it discovered
	s := &server{}
	e.Values[serverKey{}] = s
	e.Defer(func() {
		if err := s.end(); err != nil {
			e.T().Fatal(err)
		}
	})
	return nil
}
