package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/sailplane-dev/sailplane/hack/internal/gotool"
)

const (
	generatorModule  = "k8s.io/kube-openapi"
	generatorPackage = generatorModule + "/cmd/openapi-gen"
)

// generate returns every file.
func generate(ctx context.Context, our *gotool.Module, tmp string) (map[string][]byte, error) {
	binary, err := our.Install(ctx, generatorModule, generatorPackage, tmp)
	if err != nil {
		return nil, err
	}
	t := &tool{binary: binary, tmp: tmp, our: our}
	outs := outputs()
	files := map[string][]byte{}
	for _, out := range outs {
		if files[path.Join(out.dir, fileName)], err = t.generate(ctx, out, outs[0].packages); err != nil {
			return nil, fmt.Errorf("%s: %w", out.dir, err)
		}
	}
	return files, nil
}

// tool is an installed openapi-gen.
type tool struct {
	binary, tmp string
	our         *gotool.Module
}

// generate returns the Go source of one output. The file may refer to definitions
// of the shared packages without having them; openapi-gen has to read these
// packages too, else it refers to their types by Go path and not by model name.
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
		"--output-pkg", path.Join(t.our.Path, out.dir),
		"--output-file", fileName,
		"--go-header-file", header,
		// The report lists naming rules that published types break: nothing to do here.
		"--report-filename", filepath.Join(dir, "report.txt"),
	}, sets.List(sets.New(out.packages...).Insert(shared...))...)
	if _, err := gotool.Run(ctx, t.our.Dir, nil, t.binary, args...); err != nil {
		return nil, err
	}
	all, err := os.ReadFile(filepath.Join(dir, fileName))
	if err != nil {
		return nil, err
	}
	return prune(all, path.Base(out.dir), out.sets, sets.List(sets.New(shared...).Delete(out.packages...)))
}
