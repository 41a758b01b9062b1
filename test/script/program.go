package script

import (
	"context"
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"

	"github.com/sailplane-dev/sailplane/test/program"
)

// Kubectl is cmd/kubectl of Kubernetes, for a program that is kubectl when it is called so.
func Kubectl() {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}

// Build puts the binary into a folder, and the folder before all others on PATH.
func Build(ctx context.Context, dir string) error {
	if _, err := program.Sailplane(ctx, dir); err != nil {
		return err
	}
	return os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}
