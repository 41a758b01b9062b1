// Package gotool installs published generators at the version of the modules
// that go.mod names, and runs them.
package gotool

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"strings"
)

// Module is a module and its directory.
type Module struct{ Path, Dir string }

// Main runs a program that writes files, or with -check fails when one is stale.
func Main(name string, run func(ctx context.Context, check bool) error) {
	check := flag.Bool("check", false, "write nothing; fail when a file is stale")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *check)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Our returns the module of the working directory.
func Our(ctx context.Context) (*Module, error) {
	out, err := Run(ctx, "", nil, "go", "list", "-m", "-f", "{{.Path}} {{.Dir}}")
	if err != nil {
		return nil, err
	}
	name, dir, _ := strings.Cut(out, " ")
	return &Module{Path: name, Dir: dir}, nil
}

// Install builds a command, at the version that go.mod has of the module pinned,
// into a directory, and returns its path. It is built outside of our module, so
// that its imports never get into our go.mod.
func (m *Module) Install(ctx context.Context, pinned, command, dir string) (string, error) {
	version, err := Run(ctx, m.Dir, nil, "go", "list", "-m", "-f", "{{.Version}}", pinned)
	if err != nil {
		return "", err
	}
	if _, err := Run(ctx, dir, []string{"GOBIN=" + dir, "GOFLAGS="}, "go", "install", command+"@"+version); err != nil {
		return "", err
	}
	return filepath.Join(dir, path.Base(command)), nil
}

// Run runs a program and returns its trimmed output; its standard error becomes
// part of the error.
func Run(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}
