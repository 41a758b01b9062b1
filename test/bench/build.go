package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"

	"github.com/sailplane-dev/sailplane/test/program"
)

const module = "github.com/sailplane-dev/sailplane"

// program is the path of a program that build made.
func (l *lab) program(name string) string {
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	return filepath.Join(l.dir, name)
}

// build makes the server, as a user would, and what else is needed. It returns the folder
// of the library.
func build(ctx context.Context, l *lab) (root string, err error) {
	root, err = command(ctx, ".", "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(l.auditPolicy(), []byte(auditPolicy), 0o600); err != nil {
		return "", err
	}
	around := filepath.Join(root, "test")
	var what []struct{ dir, pkg, name string }
	add := func(pkg string, measured bool) {
		if measured {
			what = append(what, struct{ dir, pkg, name string }{around, pkg, path.Base(pkg)})
		}
	}
	add("./program/kubectl", l.selected("crd") && l.pgo == "")
	add("./bench/parted", (l.selected(partsName) || l.selected(aggregatedName) || l.selected(virtualName) || l.selected(keptName)) && l.pgo == "")
	add("./bench/behind", l.selected(aggregatedName) && l.pgo == "")
	add("./bench/planes", l.selected("planes") && l.pgo == "")
	if l.linked {
		what = append(what, struct{ dir, pkg, name string }{around, "./bench/profiled", "profiled"})
	}
	if l.selected(lendingName) && l.pgo == "" {
		l.say("build a sample-apiserver, and an etcd for it")
		if err := errors.Join(
			program.Build(ctx, "test/federation/sample", "k8s.io/sample-apiserver", l.program("sample-apiserver")),
			program.Build(ctx, "test/storage/etcd37", "go.etcd.io/etcd/server/v3", l.program("etcd")),
		); err != nil {
			return "", err
		}
	}
	if !l.linked || l.selected(partsName) || l.selected(copyName) || l.selected(backupName) {
		what = append(what, struct{ dir, pkg, name string }{root, "./cmd/sailplane", "sailplane"})
	}
	for _, w := range what {
		l.say("build %s", w.pkg)
		if _, err := commandWith(ctx, []string{"CGO_ENABLED=" + cgo()}, w.dir, "build", "-o", l.program(w.name), w.pkg); err != nil {
			return "", err
		}
		if err := install(l.program(w.name)); err != nil {
			return "", err
		}
	}
	return root, nil
}

// install copies a program that was just linked to where it is. What the kernel maps
// of it at once, and with that its RSS, depends on how it came into the page cache:
// of one binary of 127 MB, 87 to 100 MiB were resident when it was linked, 78 when it
// was copied or read from disk as it ran, and 118 when it was read from end to end.
func install(program string) error {
	linked, err := os.Open(program)
	if err != nil {
		return err
	}
	defer linked.Close() // again, after errors
	copied, err := os.OpenFile(program+".copy", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(copied, linked)
	if err := errors.Join(err, copied.Close(), linked.Close()); err != nil {
		return fmt.Errorf("copy %s: %w", program, err)
	}
	return os.Rename(copied.Name(), program)
}

// cgo is whether Sailplane is built with it: as the Makefile does, without it
// unless the environment says otherwise.
func cgo() string { return cmp.Or(os.Getenv("CGO_ENABLED"), "0") }

// command runs the go command and returns what it prints.
func command(ctx context.Context, dir string, args ...string) (string, error) {
	return commandWith(ctx, nil, dir, args...)
}

// commandWith runs the go command in a changed environment.
func commandWith(ctx context.Context, env []string, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "PWD="+dir), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %v in %s: %w\n%s", args, dir, err, &stderr)
	}
	return string(bytes.TrimSpace(out)), nil
}
