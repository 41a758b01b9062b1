package chart

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/test/program"
	"github.com/sailplane-dev/sailplane/test/script"
)

// patience is how long is waited for what takes moments, on a machine busy with all tests at once.
const patience = 2 * time.Minute

// sailplane, helmProgram and sampleProgram are where the programs are.
var sailplane, helmProgram, sampleProgram string

func TestMain(m *testing.M) {
	os.Exit(program.Tests{M: m, Build: func(ctx context.Context, dir string) error {
		sailplane, helmProgram = filepath.Join(dir, "sailplane"), filepath.Join(dir, "helm")
		sampleProgram = filepath.Join(dir, "sample-apiserver")
		return errors.Join(
			script.Build(ctx, dir),
			program.Build(ctx, "test/chart/helm", "helm.sh/helm/v4/cmd/helm", helmProgram),
			program.Build(ctx, "test/federation/sample", "k8s.io/sample-apiserver", sampleProgram),
		)
	}}.Run())
}

// repository is the root of the repository, and folder the chart.
func repository(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func folder(t *testing.T) string {
	t.Helper()
	return filepath.Join(repository(t), "config", "charts", "sailplane")
}

func read(t *testing.T, parts ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
