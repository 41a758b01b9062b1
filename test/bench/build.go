package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

const module = "github.com/sailplane-dev/sailplane"

// program is the path of a program that build made.
func (l *lab) program(name string) string {
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	return filepath.Join(l.dir, name)
}

// build makes the server, as a user would, and kubectl. It returns the folder
// of the library.
func build(ctx context.Context, l *lab) (root string, err error) {
	root, err = command(ctx, ".", "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return "", err
	}
	around := filepath.Join(root, "test")
	what := []struct{ dir, pkg, name string }{{around, "./bench/kubectl", "kubectl"}}
	if l.linked {
		what = append(what, struct{ dir, pkg, name string }{around, "./bench/profiled", "profiled"})
	} else {
		what = append(what, struct{ dir, pkg, name string }{root, "./cmd/sailplane", "sailplane"})
	}
	for _, w := range what {
		l.say("build %s", w.pkg)
		if _, err := command(ctx, w.dir, "build", "-o", l.program(w.name), w.pkg); err != nil {
			return "", err
		}
	}
	return root, nil
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
		return "", fmt.Errorf("go %v in %s: %w\n%s", args, dir, err, &stderr)
	}
	return string(bytes.TrimSpace(out)), nil
}
