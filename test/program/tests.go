package program

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// Tests are those of a package that runs programs.
type Tests struct {
	// M is a *testing.M.
	M interface{ Run() int }
	// Build puts the programs into a folder, which every user of the machine may read. It is removed after the tests.
	Build func(ctx context.Context, dir string) error
}

// Run implements testscript.TestingM: it returns the exit status of the process.
func (t Tests) Run() int {
	dir, err := os.MkdirTemp("", "sailplane-programs-")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		err = errors.Join(os.Chmod(dir, 0o755), t.Build(context.Background(), dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return t.M.Run()
}
