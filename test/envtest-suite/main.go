// Command envtest-suite runs the integration tests of controller-runtime
// against the binaries of "sailplane envtest install":
//
//	go -C test run ./envtest-suite
//	go -C test run ./envtest-suite -beside /usr/local/kubebuilder/bin pkg/client
//
// They are those of the version in test/go.mod, run in a copy of the module
// with a go.mod of its own, so that what they need (ginkgo, gomega) is fetched
// for them alone: the first run needs the network. With -beside, the same tests
// run with other binaries too, those of Kubernetes say.
//
// What passed, failed and why is written to stdout as Markdown, progress to
// stderr. The exit status is 1 when a test fails that is not known to, or one
// passes that is.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sailplane-dev/sailplane/test/program"
)

// module is whose tests are run.
const module = "sigs.k8s.io/controller-runtime"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "envtest-suite:", err)
		os.Exit(1)
	}
}

// packages are those whose tests start a control plane.
func packages() []string {
	return []string{
		"pkg/client", "pkg/cache", "pkg/controller", "pkg/manager", "pkg/builder", "pkg/webhook", "pkg/envtest",
		"pkg/client/apiutil", "pkg/cluster", "pkg/controller/controllerutil", "pkg/handler", "pkg/internal/controller",
		"pkg/internal/recorder", "pkg/internal/testing/controlplane", "pkg/manager/internal/integration",
		"pkg/metrics/filters", "pkg/reconcile", "pkg/source",
	}
}

func run(ctx context.Context, args []string, out, log io.Writer) error {
	flags := flag.NewFlagSet("envtest-suite", flag.ContinueOnError)
	flags.SetOutput(log)
	beside := flags.String("beside", "", "folder with other binaries, to run the tests with these too")
	verbose := flags.Bool("v", false, "write what the tests print, too")
	if err := flags.Parse(args); err != nil {
		return err
	}
	names := flags.Args()
	if len(names) == 0 {
		names = packages()
	}
	work, err := os.MkdirTemp("", "envtest-suite-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }() // a copy, in the folder for such
	s := &suite{work: work, log: log, verbose: *verbose}
	if err := s.prepare(ctx); err != nil {
		return err
	}
	assets := []binaries{{name: "Sailplane", dir: filepath.Join(work, "assets")}}
	if *beside != "" {
		dir, err := filepath.Abs(*beside)
		if err != nil {
			return err
		}
		assets = append(assets, binaries{name: "beside", dir: dir})
	}
	var all []result
	for _, name := range names {
		r, err := s.test(ctx, strings.TrimPrefix(name, "./"), assets)
		if err != nil {
			return err
		}
		all = append(all, r)
	}
	return report(out, all, assets)
}

// suite is a copy of the module, and a program built for it.
type suite struct {
	work    string
	log     io.Writer
	verbose bool
}

// source is where the copy is.
func (s *suite) source() string { return filepath.Join(s.work, "source") }

// prepare copies the module and installs the binaries.
func (s *suite) prepare(ctx context.Context) error {
	root, err := filepath.Abs("..")
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(root, "cmd", "sailplane")); err != nil {
		return fmt.Errorf("run it in the folder test, as \"go -C test run ./envtest-suite\" does: %w", err)
	}
	dir, err := output(ctx, ".", nil, "go", "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return err
	}
	if dir == "" {
		return fmt.Errorf("%s is not in the module cache: run go -C test mod download %s", module, module)
	}
	if err := os.CopyFS(s.source(), os.DirFS(dir)); err != nil {
		return err
	}
	if err := writable(s.source()); err != nil {
		return err
	}
	fmt.Fprintln(s.log, "build sailplane")
	sailplane, err := program.Sailplane(ctx, s.work)
	if err != nil {
		return err
	}
	_, err = output(ctx, root, nil, sailplane, "envtest", "install", "--dir", filepath.Join(s.work, "assets"))
	return err
}

// writable undoes what the module cache did to the modes of files: nothing may
// be written there, and nothing is a program.
func writable(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if d.IsDir() || filepath.Ext(path) == ".sh" {
			mode = 0o755
		}
		return os.Chmod(path, mode)
	})
}

// output runs a command and returns what it prints, without the last newline.
func output(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}
