// Command validation writes the validation functions that the tags of published
// Go types declare (+k8s:minimum, +k8s:immutable and so on, KEP 5073).
//
// It runs validation-gen, the published generator, at the version of k8s.io/api
// that go.mod names, on every package below pkg/internal/rules. Each has a
// doc.go whose tags say which types are read. The generated registration at the
// start of the program is left out: users of the rules register them.
//
// Run it from anywhere in the module:
//
//	go run ./hack/validation         # write the files
//	go run ./hack/validation -check  # fail when a file is stale
//
// It needs nothing but the go command: modules come from the module cache, or
// through the module proxy the first time.
package main

import (
	"context"
	"errors"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/sailplane-dev/sailplane/hack/internal/gotool"
)

const (
	rulesDir  = "pkg/internal/rules"
	fileName  = "zz_generated.validations.go"
	pinned    = "k8s.io/api" // the generator uses the same versions
	generator = "k8s.io/code-generator/cmd/validation-gen"
)

// readOnly are packages whose types have no rules of their own to generate.
func readOnly() []string {
	return []string{
		"k8s.io/apimachinery/pkg/api/resource",
		"k8s.io/apimachinery/pkg/runtime",
		"k8s.io/apimachinery/pkg/runtime/schema",
		"k8s.io/apimachinery/pkg/types",
		"k8s.io/apimachinery/pkg/util/intstr",
		"time",
	}
}

func main() { gotool.Main("validation", generate) }

// generate has every file generated in its place, and puts the old one back.
func generate(ctx context.Context, our *gotool.Module, tmp string) (map[string][]byte, error) {
	binary, err := our.Install(ctx, pinned, generator, tmp)
	if err != nil {
		return nil, err
	}
	header := filepath.Join(tmp, "header.txt")
	if err := os.WriteFile(header, nil, 0o644); err != nil {
		return nil, err
	}
	args := []string{"--output-file", fileName, "--go-header-file", header}
	for _, p := range readOnly() {
		args = append(args, "--readonly-pkg", p)
	}
	docs, err := fs.Glob(os.DirFS(our.Dir), rulesDir+"/*/doc.go")
	if err != nil {
		return nil, err
	}
	if len(docs) == 0 {
		return nil, fmt.Errorf("%s has no packages", rulesDir)
	}
	old := map[string][]byte{}
	for _, doc := range docs {
		args = append(args, "./"+path.Dir(doc))
		file := path.Join(path.Dir(doc), fileName)
		if old[file], err = os.ReadFile(filepath.Join(our.Dir, file)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	if _, err := gotool.Run(ctx, our.Dir, nil, binary, args...); err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for file, content := range old {
		name := filepath.Join(our.Dir, file)
		code, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if files[file], err = tidy(code); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if content == nil {
			err = os.Remove(name)
		} else {
			err = os.WriteFile(name, content, 0o644)
		}
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

// tidy removes the registration at the start of the program and the build tags
// of the generator.
func tidy(code []byte) ([]byte, error) {
	lines := strings.Split(string(code), "\n")
	kept := lines[:0]
	for _, line := range lines {
		if strings.HasPrefix(line, "//go:build ") || strings.HasPrefix(line, "// +build ") || strings.HasPrefix(line, "func init()") {
			continue
		}
		kept = append(kept, line)
	}
	return format.Source([]byte(strings.TrimSpace(strings.Join(kept, "\n")) + "\n"))
}
