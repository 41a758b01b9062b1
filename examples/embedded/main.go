// Command embedded has a control plane inside a program with HTTP handlers, TLS
// and users of its own, and a controller that needs no socket to reach it.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:6443", "address to serve HTTPS at")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen); err != nil {
		fmt.Fprintln(os.Stderr, "embedded:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, listen string) error {
	users := tokens{newToken(): "admin"}
	plane, err := controlplane.New("embedded").
		Storage(memory.Store{}).
		With(users, core.Namespaces{}, core.ConfigMaps{}).
		Build()
	if err != nil {
		return err
	}
	cert, pem, err := selfSigned()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/", plane.Handler())
	mux.HandleFunc("GET /hello", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello from the program around it") })
	web := &http.Server{Handler: mux, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}}

	// If one of these ends with an error, or the program is interrupted, all
	// end: the controller, then the plane that it uses, then the web server.
	work, ctx := errgroup.WithContext(ctx)
	life, stopPlane := context.WithCancel(context.WithoutCancel(ctx))
	work.Go(func() error {
		err := plane.Run(life) // returns after it has answered its requests and ended its watches
		return errors.Join(err, web.Shutdown(context.WithoutCancel(ctx)))
	})
	work.Go(func() error {
		if err := web.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	work.Go(func() error {
		defer stopPlane()
		select {
		case <-plane.Ready():
		case <-ctx.Done():
			return nil
		}
		return greet(ctx, plane.ClientConfig(), func() error { return writeKubeconfig(listener.Addr(), pem, users) })
	})
	return work.Wait()
}
