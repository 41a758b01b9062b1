// Package gotool installs published generators at the version of the modules
// that go.mod names, runs them, and writes what they generate.
package gotool

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Module is a module and its directory.
type Module struct{ Path, Dir string }

// Generator returns files by their path from the root of the module. The directory
// is for temporary files.
type Generator func(ctx context.Context, our *Module, tmp string) (map[string][]byte, error)

// Main writes the files of a generator, or with -check fails when one is stale.
// The name is that of the program.
func Main(name string, generate Generator) {
	check := flag.Bool("check", false, "write nothing; fail when a file is stale")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, name, *check, generate)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, name string, check bool, generate Generator) error {
	// The module of the working directory.
	out, err := Run(ctx, "", nil, "go", "list", "-m", "-f", "{{.Path}} {{.Dir}}")
	if err != nil {
		return err
	}
	our := &Module{}
	our.Path, our.Dir, _ = strings.Cut(out, " ")
	tmp, err := os.MkdirTemp("", name+"-gen-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // a left-over in the temporary directory harms nobody
	files, err := generate(ctx, our, tmp)
	if err != nil {
		return err
	}
	var stale []string
	for _, file := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(our.Dir, file)
		old, err := os.ReadFile(path)
		switch {
		case err != nil && !errors.Is(err, os.ErrNotExist):
			return err
		case bytes.Equal(old, files[file]):
			continue
		case check:
			stale = append(stale, file)
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, files[file], 0o644); err != nil {
			return err
		}
		fmt.Println("wrote", file)
	}
	if len(stale) > 0 {
		return fmt.Errorf("stale: %s: run go run ./hack/%s and commit the result", strings.Join(stale, ", "), name)
	}
	return nil
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
