// Command webhook runs the admission webhook of cert-manager, with the flags of its own command.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/cert-manager/cert-manager/internal/webhook"
	logf "github.com/cert-manager/cert-manager/pkg/logs"
	"github.com/cert-manager/cert-manager/pkg/webhook/options"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	logf.InitLogs()
	ctrl.SetLogger(logf.Log)
	err := run(logf.NewContext(ctx, logf.Log, "webhook"))
	logf.FlushLogs()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "webhook:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	c, err := options.NewWebhookConfiguration()
	if err != nil {
		return err
	}
	options.AddConfigFlags(pflag.CommandLine, c)
	pflag.Parse()
	if err := logf.ValidateAndApply(&c.Logging); err != nil {
		return err
	}
	server, err := webhook.NewCertManagerWebhookServer(logf.FromContext(ctx), *c)
	if err != nil {
		return err
	}
	return server.Run(ctx)
}
