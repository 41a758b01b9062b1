// Command lender is a server that lends storage, which is started as sailplane is. Its borrowers connect anew every few
// seconds, and it says with which certificates.
package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/preset"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storageapi"
)

// connectionAge is when borrowers connect anew.
const connectionAge = time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[2:]) // after "serve"
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "lender:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	listen, dir := flags.String("listen", "", ""), flags.String("data-dir", "", "")
	flags.String("config", "", "") // what it has is not for this program
	if err := flags.Parse(args); err != nil {
		return err
	}
	kubeconfig := filepath.Join(*dir, "admin.kubeconfig")
	return controlplane.New("lender").Listen(*listen).Storage(memory.Store{}).With(
		authn.Admin{Kubeconfig: kubeconfig}, authz.RBAC{}, preset.Standard(), kube.FlowControl(), aggregator.APIServices{},
		controlplane.ServerPartFunc(observe), storageapi.EtcdStorages{ConnectionAge: connectionAge},
		controlplane.ServerPartFunc(func(p *controlplane.ServerPlan) error {
			p.Work(controlplane.Work{Name: "ready line", Start: func(_ context.Context, plane *controlplane.Plane) error {
				_, err := fmt.Printf("ready at https://%s\n", plane.Server().Address())
				return err
			}})
			return nil
		}),
	).Run(ctx)
}

// observe says who connects. The connections are for other parts.
func observe(p *controlplane.ServerPlan) error {
	p.Connect("observer", func(c *tls.Conn) bool {
		if certs := c.ConnectionState().PeerCertificates; len(certs) > 0 {
			fmt.Printf("client certificate %s\n", certs[0].SerialNumber)
		}
		return false
	})
	return nil
}
