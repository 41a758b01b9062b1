// Command parted is a server, most often in memory, with little in it and one part more, for
// measuring what that part costs each request. Its user, whom the kubeconfig
// names, is no member of system:masters: many parts do nothing for these.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "parted:", err)
		os.Exit(1)
	}
}

const (
	user  = "bench"
	group = "benchers"
	// ready is the kubeconfig, in the data directory: whoever waits for the server
	// waits for the file.
	ready = "bench.kubeconfig"
)

func run(ctx context.Context) error {
	listen := flag.String("listen", "127.0.0.1:0", "address to serve HTTPS at")
	dir := flag.String("data-dir", "data", "directory for keys, certificates and the kubeconfig")
	name := flag.String("part", "none", "what to have beside the least")
	collector := flag.String("collector", "", "HOST:PORT of an OTLP collector")
	flag.Parse()
	chosen, err := choose(*name, *dir, *collector)
	if err != nil {
		return err
	}
	// The administrator's kubeconfig becomes that of the measurement when
	// everything it needs is there.
	early := filepath.Join(*dir, "early.kubeconfig")
	server, err := controlplane.New("parted").
		Listen(*listen).
		Storage(chosen.storage).
		Limits(chosen.limits).
		With(
			authn.Admin{Dir: filepath.Join(*dir, "pki"), Kubeconfig: early, User: user, Groups: []string{group}},
			core.Namespaces{}, core.ConfigMaps{},
			chosen.parts,
		).
		Build()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	select {
	case <-server.Ready():
	case err := <-ended:
		return err
	}
	if err := chosen.prepare(ctx, server.ClientConfig(), early); err != nil {
		cancel()
		return errors.Join(err, <-ended)
	}
	if err := os.Rename(early, filepath.Join(*dir, ready)); err != nil {
		cancel()
		return errors.Join(err, <-ended)
	}
	return <-ended
}
