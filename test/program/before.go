package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// SailplaneOf returns the path of the binary of an earlier commit, which is built once.
func SailplaneOf(ctx context.Context, commit string) (path string, err error) {
	path, unlock, err := Shared(ctx, "sailplane-"+commit)
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	root := filepath.Join(filepath.Dir(path), "..", "..")
	source := path + ".source" // always the same, so that the compiler's cache knows it
	archive := filepath.Join(source, "source.tar")
	if err := os.MkdirAll(source, 0o755); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(source)) }()
	for _, command := range [][]string{
		{"git", "-C", root, "archive", "--format=tar", "--output", archive, commit},
		{"tar", "-x", "-f", archive, "-C", source},
		{"go", "build", "-pgo=off", "-ldflags=-s -w", "-o", path, "./cmd/sailplane"},
	} {
		c := exec.CommandContext(ctx, command[0], command[1:]...)
		c.Dir, c.Env = source, append(os.Environ(), "CGO_ENABLED=0", "PWD="+source)
		if out, err := c.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w\n%s", c, err, bytes.TrimSpace(out))
		}
	}
	return path, nil
}
