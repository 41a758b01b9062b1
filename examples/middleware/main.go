// Command middleware puts handlers of its own into each slot of the handler
// chain: request ids, a notice, an audit line and a maintenance mode.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/middleware"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:6443", "address to serve HTTPS at")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := controlplane.New("middleware").
		Listen(*listen).
		Storage(memory.Store{}).
		With(
			authn.Admin{Kubeconfig: "admin.kubeconfig"},
			core.Namespaces{}, core.ConfigMaps{},
			middleware.Wrap("request-id", requestID),
			middleware.BeforeAuthentication("notice", notice),
			middleware.AfterAuthentication("audit", audit),
			middleware.Innermost("maintenance", maintenance),
		).
		Run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "middleware:", err)
		os.Exit(1)
	}
}
