package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := controlplane.New("minimal").
		Listen("127.0.0.1:6443").
		Storage(etcd.Embedded{Dir: "data"}).
		With(
			authn.Admin{Kubeconfig: "admin.kubeconfig"},
			core.Namespaces{}, core.ConfigMaps{}, core.Secrets{},
			crd.Definitions{},
			aggregator.APIServices{},
		).
		Run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "minimal:", err)
		os.Exit(1)
	}
}
