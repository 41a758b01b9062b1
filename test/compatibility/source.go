package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// source is what a program is published as.
type source interface {
	// fetch downloads it and builds its binaries, if that was not done before.
	fetch(ctx context.Context, l *lab) ([]folder, error)
}

// folder is one that a script finds: in its environment by a variable, or on PATH.
type folder struct {
	variable, dir string
}

// module is a Go module at the version that its registry has it as.
type module struct {
	// variable is the name of the module's folder in scripts.
	variable      string
	path, version string
	// binaries are packages, by the name of their binary.
	binaries map[string]string
	// ldflags are further flags of the linker, which say the version.
	ldflags string
	// nested are modules that the go.mod replaces by folders, which are not in the module.
	nested []string
}

func (m module) fetch(ctx context.Context, l *lab) ([]folder, error) {
	out, err := l.command(ctx, "go", "mod", "download", "-json", m.path+"@"+m.version)
	var said struct{ Dir, Error string }
	if jsonErr := json.Unmarshal([]byte(out), &said); jsonErr != nil {
		return nil, errors.Join(err, jsonErr)
	}
	if said.Error != "" {
		return nil, fmt.Errorf("download %s@%s: %s", m.path, m.version, said.Error)
	}
	folders := []folder{{variable: m.variable, dir: said.Dir}}
	if len(m.binaries) == 0 {
		return folders, nil
	}
	bin := filepath.Join(l.cache, "bin", strings.ReplaceAll(m.path, "/", "_")+"@"+m.version)
	if err := m.build(ctx, l, said.Dir, bin); err != nil {
		return nil, err
	}
	return append(folders, folder{dir: bin}), nil
}

// build puts the binaries into a folder, those that are not there.
func (m module) build(ctx context.Context, l *lab, dir, bin string) error {
	missing := maps.Clone(m.binaries)
	maps.DeleteFunc(missing, func(name, _ string) bool {
		_, err := os.Stat(filepath.Join(bin, name))
		return err == nil
	})
	if len(missing) > 0 && len(m.nested) > 0 {
		var err error
		if dir, err = m.complete(ctx, l, dir); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
	}
	for name, pkg := range missing {
		// The module's own go.mod and go.sum hold, as when its makers build it.
		l.say("build %s of %s@%s", pkg, m.path, m.version)
		file := filepath.Join(bin, name)
		if _, err := l.command(ctx, "go", "build", "-C", dir, "-mod=readonly", "-ldflags=-s -w "+m.ldflags, "-o", file, pkg); err != nil {
			return err
		}
	}
	return nil
}

// command runs a program of this machine and returns what it printed.
func (l *lab) command(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return string(bytes.TrimSpace(out)), err
}
