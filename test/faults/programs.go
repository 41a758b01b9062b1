package faults

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// module is the library, in whose repository the sources of the programs are.
const module = "github.com/sailplane-dev/sailplane"

// Programs are the paths of the programs that rounds run.
type Programs struct{ Server, Etcd string }

// Build builds the programs into a directory. It needs to run in the module of
// the tests.
func Build(ctx context.Context, dir string) (Programs, error) {
	p := Programs{Server: filepath.Join(dir, "server"), Etcd: filepath.Join(dir, "etcd")}
	root, err := command(ctx, ".", "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return p, err
	}
	// The flags are those of the Makefile's tests: the build is shared with them.
	if _, err := command(ctx, filepath.Join(root, "test"), "build", "-pgo=off", "-o", p.Server, "./faults/server"); err != nil {
		return p, err
	}
	// The etcd is the one that the benchmark compares with.
	_, err = command(ctx, filepath.Join(root, "test", "bench", "peers"), "build", "-pgo=off", "-o", p.Etcd, "go.etcd.io/etcd/server/v3")
	return p, err
}

// command runs the go command and returns what it prints.
func command(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PWD="+dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s in %s: %w: %s", strings.Join(args, " "), dir, err, &stderr)
	}
	return strings.TrimSpace(string(out)), nil
}
