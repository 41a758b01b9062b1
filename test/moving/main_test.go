//go:build unix

// Package moving moves what a server has stored while clients go on, and kills what moves it.
package moving

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	controllerruntime "sigs.k8s.io/controller-runtime"

	"github.com/sailplane-dev/sailplane/test/program"
)

// tools has the programs that tests run, by their names.
var tools string

// sailplane is the binary, one of the tools.
func sailplane() string { return filepath.Join(tools, "sailplane") }

func TestMain(m *testing.M) {
	controllerruntime.SetLogger(logr.Discard()) // that it waits for a server is no news
	os.Exit(program.Tests{M: m, Build: func(ctx context.Context, dir string) error {
		tools = dir
		if _, err := program.Sailplane(ctx, dir); err != nil {
			return err
		}
		if err := program.Build(ctx, "test/storage/etcd37", "go.etcd.io/etcd/server/v3", filepath.Join(dir, "etcd")); err != nil {
			return err
		}
		return program.Build(ctx, "test/storage/etcd37", "go.etcd.io/etcd/etcdutl/v3", filepath.Join(dir, "etcdutl"))
	}}.Run())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
