// Package consumer tests what somebody gets who imports the library.
package consumer

import (
	"archive/zip"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const module = "github.com/sailplane-dev/sailplane"

// TestGoGet makes a module that does nothing but `go get` this one, from a
// module proxy that serves it as it is, with the README's main in it. It needs no
// replace, and what it is built of are the packages, files and versions that it is
// built of here, so that it builds: to compile them again took minutes.
func TestGoGet(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	proxy := t.TempDir()
	// The go command takes what it knows of a version for ever: each run has its own.
	version := "v0.0.1-test." + strings.ToLower(rand.Text())
	if err := publish(root, version, filepath.Join(proxy, filepath.FromSlash(module), "@v")); err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join(root, "examples", "minimal", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), source, 0o600); err != nil {
		t.Fatal(err)
	}
	upstream := output(t, root, nil, "go", "env", "GOPROXY")
	env := append(os.Environ(),
		"GOPROXY=file://"+filepath.ToSlash(proxy)+","+strings.TrimSpace(upstream),
		"GONOSUMDB="+module, "GOFLAGS=-mod=mod -modcacherw", "GOWORK=off")
	output(t, dir, env, "go", "mod", "init", "example.com/consumer")
	output(t, dir, env, "go", "get", module+"@"+version)
	if diff := cmp.Diff(ingredients(t, root, nil, "./examples/minimal"), ingredients(t, dir, env, ".")); diff != "" {
		t.Errorf("the main is built of something else (-here +there):\n%s", diff)
	}
	gomod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(gomod, []byte("replace")) {
		t.Errorf("the consumer's go.mod has a replace:\n%s", gomod)
	}
	// The version stays in the module cache otherwise, and the next run gets it.
	cached := strings.TrimSpace(output(t, dir, env, "go", "list", "-m", "-f", "{{.Dir}}", module))
	if filepath.Base(cached) == "sailplane@"+version {
		_ = os.RemoveAll(cached)
		known := filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(cached))), "cache", "download", filepath.FromSlash(module), "@v")
		files, err := filepath.Glob(filepath.Join(known, version+".*")) // those of other runs stay, which may be going on
		if err != nil {
			t.Error(err)
		}
		for _, f := range files {
			_ = os.Remove(f)
		}
	}
}

// ingredients are the packages that a main is built of, with the versions of modules and the names of files.
func ingredients(t *testing.T, dir string, env []string, pkg string) []string {
	t.Helper()
	const format = `{{if not (or .Standard (eq .Name "main"))}}{{.ImportPath}} {{if ne .Module.Path "` + module + `"}}{{.Module.Version}} {{end}}` +
		`{{.GoFiles}} {{.SFiles}} {{.EmbedFiles}}{{end}}`
	all := strings.Split(strings.TrimSpace(output(t, dir, env, "go", "list", "-deps", "-f", format, pkg)), "\n")
	if len(all) < 100 {
		t.Errorf("%s is built of %d packages", pkg, len(all))
	}
	return all
}

func output(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir, c.Env = dir, env
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return string(out)
}

// publish writes the files of a module proxy for one version of the module.
// Source: https://go.dev/ref/mod#goproxy-protocol
func publish(root, version, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	gomod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return err
	}
	info, err := json.Marshal(map[string]string{"Version": version, "Time": "2026-01-01T00:00:00Z"})
	if err != nil {
		return err
	}
	archive, err := zipOf(root, version)
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{
		"list": []byte(version + "\n"), version + ".info": info, version + ".mod": gomod, version + ".zip": archive,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// zipOf packs the module: every file but those of nested modules, hidden
// folders and what is built.
func zipOf(root, version string) ([]byte, error) {
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() && path != root {
			_, err := os.Stat(filepath.Join(path, "go.mod"))
			if err == nil || strings.HasPrefix(d.Name(), ".") || rel == "bin" {
				return fs.SkipDir
			}
		}
		if !d.Type().IsRegular() || strings.HasPrefix(d.Name(), ".") {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f, err := w.Create(fmt.Sprintf("%s@%s/%s", module, version, filepath.ToSlash(rel)))
		if err != nil {
			return err
		}
		_, err = f.Write(data)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = w.Close()
	return buf.Bytes(), err
}
