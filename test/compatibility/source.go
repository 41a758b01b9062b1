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
	// replaced are modules that the go.mod names without saying where they are now: in a folder that
	// the module does not have, or in a registry that has ended. The value is the version that is
	// published; empty for a module that nothing imports.
	replaced map[string]string
}

func (m module) fetch(ctx context.Context, l *lab) ([]folder, error) {
	dir, err := l.download(ctx, m.path, m.version)
	if err != nil {
		return nil, err
	}
	folders := []folder{{variable: m.variable, dir: dir}}
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
		build := []string{"build", "-C", dir, "-mod=readonly", "-ldflags=-s -w " + m.ldflags, "-o", file}
		if len(m.replaced) > 0 {
			modfile, err := m.modfile(ctx, l, dir, filepath.Join(l.cache, "mod", name))
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

// modfile writes a go.mod and a go.sum like the module's own into a folder, with folders for the
// modules that are replaced.
func (m module) modfile(ctx context.Context, l *lab, from, to string) (string, error) {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return "", err
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
	for path, version := range m.replaced {
		dir := filepath.Join(to, strings.ReplaceAll(path, "/", "_"))
		if version != "" {
			var err error
			if dir, err = l.download(ctx, path, version); err != nil {
				return "", err
			}
		} else if err := empty(path, dir); err != nil {
			return "", err
		}
		edit = append(edit, "-replace="+path+"="+dir)
	}
	_, err := l.command(ctx, "go", append(edit, file)...)
	return file, err
}

// empty makes a module without packages.
func empty(path, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module "+path+"\n"), 0o600)
}

// download gets a module and returns its folder, which is read-only.
func (l *lab) download(ctx context.Context, path, version string) (string, error) {
	out, err := l.command(ctx, "go", "mod", "download", "-json", path+"@"+version)
	var said struct{ Dir, Error string }
	if jsonErr := json.Unmarshal([]byte(out), &said); jsonErr != nil {
		return "", errors.Join(err, jsonErr)
	}
	if said.Error != "" {
		return "", fmt.Errorf("download %s@%s: %s", path, version, said.Error)
	}
	return said.Dir, nil
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
