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

// generate returns every file. openapi-gen runs once, on all packages: it takes a few seconds to
// read them.
func generate(ctx context.Context, our *gotool.Module, tmp string) (map[string][]byte, error) {
	outs := outputs()
	packages := sets.New[string]()
	for _, out := range outs {
		packages.Insert(out.packages...)
	}
	text, err := definitions(ctx, our, tmp, sets.List(packages))
	if err != nil {
		return nil, err
	}
	all, err := parse(text)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, out := range outs {
		if files[path.Join(out.dir, fileName)], err = all.prune(out, outs[0].packages); err != nil {
			return nil, fmt.Errorf("%s: %w", out.dir, err)
		}
	}
	return files, nil
}

// definitions returns the Go source that openapi-gen writes for packages. It refers to types of
// packages that it does not read by Go path and not by model name.
func definitions(ctx context.Context, our *gotool.Module, tmp string, packages []string) ([]byte, error) {
	binary, err := our.Install(ctx, generatorModule, generatorPackage, tmp)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(tmp, "out-")
	if err != nil {
		return nil, err
	}
	header := filepath.Join(dir, "header.txt")
	if err := os.WriteFile(header, nil, 0o644); err != nil {
		return nil, err
	}
	args := append([]string{
		"--output-dir", dir,
		"--output-pkg", path.Join(our.Path, "definitions"),
		"--output-file", fileName,
		"--go-header-file", header,
		// The report lists naming rules that published types break: nothing to do here.
		"--report-filename", filepath.Join(dir, "report.txt"),
	}, packages...)
	if _, err := gotool.Run(ctx, our.Dir, nil, binary, args...); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(dir, fileName))
}
