package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const (
	generatorModule  = "k8s.io/kube-openapi"
	generatorPackage = generatorModule + "/cmd/openapi-gen"
)

// tool is an installed openapi-gen.
type tool struct {
	binary string
	tmp    string
	// module and root are the import path and the directory of our module.
	module, root string
}

// install builds openapi-gen into tmp. It is built outside of our module, so
// that what it imports never gets into our go.mod.
func install(ctx context.Context, tmp string) (*tool, error) {
	module, err := goCommand(ctx, "", nil, "list", "-m", "-f", "{{.Path}} {{.Dir}}")
	if err != nil {
		return nil, err
	}
	name, root, _ := strings.Cut(module, " ")
	version, err := goCommand(ctx, root, nil, "list", "-m", "-f", "{{.Version}}", generatorModule)
	if err != nil {
		return nil, err
	}
	if _, err := goCommand(ctx, tmp, []string{"GOBIN=" + tmp, "GOFLAGS="}, "install", generatorPackage+"@"+version); err != nil {
		return nil, err
	}
	return &tool{binary: filepath.Join(tmp, "openapi-gen"), tmp: tmp, module: name, root: root}, nil
}

// generate returns the Go source of one output. Definitions of the shared
// packages may be referred to without being in the file; openapi-gen has to
// read these too, else it refers to their types by Go path and not by model name.
func (t *tool) generate(ctx context.Context, out output, shared []string) ([]byte, error) {
	dir, err := os.MkdirTemp(t.tmp, "out-")
	if err != nil {
		return nil, err
	}
	header := filepath.Join(dir, "header.txt")
	if err := os.WriteFile(header, nil, 0o644); err != nil {
		return nil, err
	}
	args := append([]string{
		"--output-dir", dir,
		"--output-pkg", path.Join(t.module, out.dir),
		"--output-file", fileName,
		"--go-header-file", header,
		// The report lists naming rules that published types break: nothing to act on here.
		"--report-filename", filepath.Join(dir, "report.txt"),
	}, union(out.packages, shared)...)
	if _, err := command(ctx, t.root, nil, t.binary, args...); err != nil {
		return nil, err
	}
	all, err := os.ReadFile(filepath.Join(dir, fileName))
	if err != nil {
		return nil, err
	}
	elsewhere := slices.DeleteFunc(slices.Clone(shared), func(p string) bool { return slices.Contains(out.packages, p) })
	return prune(all, path.Base(out.dir), out.sets, elsewhere)
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

func goCommand(ctx context.Context, dir string, env []string, args ...string) (string, error) {
	return command(ctx, dir, env, "go", args...)
}

// command runs a program and returns its trimmed output; what it said on
// standard error becomes part of the error.
func command(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
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
