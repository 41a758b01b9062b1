// Command typed serves an API group made of Go types: apples in two versions,
// with conversion, defaults, validation, columns, status, scale and admission.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/sailplane-dev/sailplane/examples/typed/fruit/v1"
	"github.com/sailplane-dev/sailplane/pkg/admit"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:6443", "address to serve HTTPS at")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := controlplane.New("typed").
		Listen(*listen).
		Storage(sqlite.File{Path: "data/typed.db"}).
		With(
			authn.Admin{Kubeconfig: "admin.kubeconfig"},
			core.Namespaces{},
			fruits(),
			admit.ValidateObject("no-rotten-apples", noRottenApples),
		).
		Run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "typed:", err)
		os.Exit(1)
	}
}

// noRottenApples decides who may ask for what; the resource says what makes an
// apple valid.
func noRottenApples(_ context.Context, apple, _ *v1.Apple, a admit.Attributes) error {
	if apple.Labels["rotten"] == "true" && a.GetUserInfo().GetName() != "composter" {
		return errors.New("only the composter takes rotten apples")
	}
	return nil
}
