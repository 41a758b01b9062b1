// Command crds serves custom resources and nothing else: the CRDs of the folder
// crds are part of the binary, and there are no namespaces, no ConfigMaps, no
// core group at all.
package main

import (
	"context"
	"embed"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

//go:embed crds
var crds embed.FS

func main() {
	listen := flag.String("listen", "127.0.0.1:6443", "address to serve HTTPS at")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := controlplane.New("crds").
		Listen(*listen).
		Storage(sqlite.File{Path: "data/crds.db"}).
		With(
			authn.Admin{Kubeconfig: "admin.kubeconfig"},
			crd.Definitions{FS: crds},
		).
		Run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "crds:", err)
		os.Exit(1)
	}
}
