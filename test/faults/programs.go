package faults

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/sailplane-dev/sailplane/test/program"
)

// Programs are the paths of the programs that rounds run.
type Programs struct{ Server, Etcd string }

// Build puts the programs into a directory.
func Build(ctx context.Context, dir string) (Programs, error) {
	p := Programs{Server: filepath.Join(dir, "server"), Etcd: filepath.Join(dir, "etcd")}
	return p, errors.Join(
		program.Build(ctx, "test", "./faults/server", p.Server),
		program.Build(ctx, "test/storage/etcd37", "go.etcd.io/etcd/server/v3", p.Etcd),
	)
}
