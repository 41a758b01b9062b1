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
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/format"
	"os"
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

func main() { gotool.Main("validation", run) }

// run generates every file in its place, and restores the old one if
// nothing is to be written.
func run(ctx context.Context, check bool) error {
	our, err := gotool.Our(ctx)
	if err != nil {
		return err
	}
	docs, err := filepath.Glob(filepath.Join(our.Dir, rulesDir, "*", "doc.go"))
	if err != nil {
		return err
	}
	if len(docs) == 0 {
		return fmt.Errorf("%s has no packages", rulesDir)
	}
	files := map[string][]byte{} // as they are now
	for _, doc := range docs {
		file := filepath.Join(filepath.Dir(doc), fileName)
		if files[file], err = os.ReadFile(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := generate(ctx, our, files); err != nil {
		return err
	}
	var stale []string
	for file, old := range files {
		now, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		code, err := tidy(now)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		switch {
		case bytes.Equal(old, code):
		case check:
			stale = append(stale, filepath.Base(filepath.Dir(file)))
		default:
			fmt.Println("wrote", file)
			old = code
		}
		if err := restore(file, old); err != nil {
			return err
		}
	}
	if len(stale) > 0 {
		return fmt.Errorf("stale in %s: %s: run go run ./hack/validation and commit the result", rulesDir, strings.Join(stale, ", "))
	}
	return nil
}

func restore(file string, content []byte) error {
	if content == nil {
		return os.Remove(file)
	}
	return os.WriteFile(file, content, 0o644)
}

func generate(ctx context.Context, our *gotool.Module, files map[string][]byte) error {
	tmp, err := os.MkdirTemp("", "validation-gen-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // a left-over in the temporary directory harms nobody
	binary, err := our.Install(ctx, pinned, generator, tmp)
	if err != nil {
		return err
	}
	header := filepath.Join(tmp, "header.txt")
	if err := os.WriteFile(header, nil, 0o644); err != nil {
		return err
	}
	args := []string{"--output-file", fileName, "--go-header-file", header}
	for _, p := range readOnly() {
		args = append(args, "--readonly-pkg", p)
	}
	for file := range files {
		dir, err := filepath.Rel(our.Dir, filepath.Dir(file))
		if err != nil {
			return err
		}
		args = append(args, "./"+filepath.ToSlash(dir))
	}
	_, err = gotool.Run(ctx, our.Dir, nil, binary, args...)
	return err
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
