// Command sailplane is a Kubernetes control plane without nodes: every part of
// the library in one binary.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/component-base/metrics"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/envtest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	// /metrics leaves this histogram out, so do not count it: it would equal another
	// one.
	metrics.SetDisabledMetrics([]string{"apiserver_request_slo_duration_seconds"})
	program := command()
	// Called by the name of another program, it acts as that one, for envtest.
	if other := envtest.Named(os.Args[0], logging); other != nil {
		program = other
	}
	err := program.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", program.Name(), err)
		os.Exit(1)
	}
}
