package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	// bin is the name of the binaries' folder in scripts, where PATH does not find them: for plugins.
	bin string
	// gone are modules that the module's go.mod names, whose registry has ended. No package that is
	// built imports them, so empty ones do.
	gone []string
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
	name := strings.ReplaceAll(m.path, "/", "_") + "@" + m.version
	bin := filepath.Join(l.cache, "bin", name)
	for binary, pkg := range m.binaries {
		file := filepath.Join(bin, binary)
		if _, err := os.Stat(file); err == nil {
			continue
		}
		// The module's own go.mod and go.sum hold, as when its makers build it.
		build := []string{"build", "-C", said.Dir, "-mod=readonly", "-ldflags=-s -w " + m.ldflags, "-o", file}
		if len(m.gone) > 0 {
			modfile, err := m.modfile(ctx, l, said.Dir, filepath.Join(l.cache, "mod", name))
			if err != nil {
				return nil, err
			}
			build = append(build, "-modfile="+modfile)
		}
		l.say("build %s of %s@%s", pkg, m.path, m.version)
		if _, err := l.command(ctx, "go", append(build, pkg)...); err != nil {
			return nil, err
		}
	}
	return append(folders, folder{variable: m.bin, dir: bin}), nil
}

// modfile writes a go.mod and a go.sum like the module's own into a folder, with empty modules
// for those that are gone.
func (m module) modfile(ctx context.Context, l *lab, from, to string) (string, error) {
	for _, gone := range m.gone {
		empty := filepath.Join(to, strings.ReplaceAll(gone, "/", "_"))
		if err := os.MkdirAll(empty, 0o700); err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(empty, "go.mod"), []byte("module "+gone+"\n"), 0o600); err != nil {
			return "", err
		}
	}
	file := filepath.Join(to, "go.mod")
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(to, name), text, 0o600); err != nil {
			return "", err
		}
	}
	edit := []string{"mod", "edit"}
	for _, gone := range m.gone {
		edit = append(edit, "-replace="+gone+"="+filepath.Join(to, strings.ReplaceAll(gone, "/", "_")))
	}
	_, err := l.command(ctx, "go", append(edit, file)...)
	return file, err
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
