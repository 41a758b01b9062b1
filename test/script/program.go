package script

import (
	"context"
	"os"

	"github.com/sailplane-dev/sailplane/test/program"
)

// Build puts sailplane and kubectl into a folder, and the folder before all others on PATH.
func Build(ctx context.Context, dir string) error {
	if _, err := program.Sailplane(ctx, dir); err != nil {
		return err
	}
	if _, err := program.Kubectl(ctx, dir); err != nil {
		return err
	}
	return os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}
