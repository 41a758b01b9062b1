package script

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

// Kubectl is cmd/kubectl of Kubernetes, for a program that is kubectl when it is called so.
func Kubectl() {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}

// Build puts the binary into a folder, and the folder before all others on PATH. It is built
// rather than linked in, to be what users run.
func Build(ctx context.Context, root, dir string) error {
	name := "sailplane"
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	// The flags are those of the Makefile's tests: the build is shared with them.
	build := exec.CommandContext(ctx, "go", "build", "-pgo=off", "-o", filepath.Join(dir, name), "./cmd/sailplane")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build ./cmd/sailplane: %w\n%s", err, bytes.TrimSpace(out))
	}
	return os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}
