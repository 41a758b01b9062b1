// Command sailplane is a Kubernetes control plane without nodes: every part of
// the library in one binary.
package main

import (
	"context"
	"errors"
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
	}
	os.Exit(status(err))
}

// The exit codes. A process that a signal ended has the shell's, 128 and its number.
const (
	statusFailed = 1 // something outside failed: a port, a disk, a storage
	statusMisuse = 2 // the command line or the configuration is wrong: a restart does not help
)

func status(err error) int {
	var wrong misuse
	switch {
	case err == nil:
		return 0
	case errors.As(err, &wrong):
		return statusMisuse
	}
	return statusFailed
}

// misuse is an error of the command line or of the configuration.
type misuse struct{ error }

func (m misuse) Unwrap() error { return m.error }

// misused marks an error as one of the caller.
func misused(err error) error {
	if err == nil {
		return nil
	}
	return misuse{err}
}
