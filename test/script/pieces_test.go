package script

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sailplane-dev/sailplane/pkg/admit"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/builtin/admissionregistration"
	"github.com/sailplane-dev/sailplane/pkg/builtin/authentication"
	"github.com/sailplane-dev/sailplane/pkg/builtin/certificates"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/lifecycle"
	"github.com/sailplane-dev/sailplane/pkg/quota"
	"github.com/sailplane-dev/sailplane/pkg/serviceaccount"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// pieces are the parts that a script of testdata/answers, api or pieces needs,
// and no others.
func pieces(script string) controlplane.Parts {
	switch script {
	case "cascade":
		return controlplane.Parts{
			core.Namespaces{},
			core.ConfigMaps{},
			core.Secrets{},
			lifecycle.GarbageCollection{},
		}
	case "certificates":
		return controlplane.Parts{core.Namespaces{}, certificates.CertificateSigningRequests{}}
	case "events":
		return controlplane.Parts{core.Namespaces{}, core.ConfigMaps{}, core.Events{}}
	case "evict":
		return controlplane.Parts{core.Namespaces{}, kube.Core("pods"), kube.Policy()}
	case "limits":
		return controlplane.Parts{
			core.Namespaces{}, kube.Core("pods", "persistentvolumeclaims"), quota.LimitRanges{},
		}
	case "namespace-delete":
		return controlplane.Parts{
			core.Namespaces{}, core.ConfigMaps{}, core.Secrets{}, crd.Definitions{},
		}
	case "policies":
		return controlplane.Parts{
			core.Namespaces{},
			core.ConfigMaps{},
			crd.Definitions{},
			admissionregistration.All(),
			admit.MutatingPolicies{},
			admit.ValidatingPolicies{},
		}
	case "quota":
		return controlplane.Parts{
			core.Namespaces{}, core.ConfigMaps{}, core.Secrets{}, crd.Definitions{}, quota.ResourceQuotas{},
		}
	case "tokens":
		return controlplane.Parts{
			core.Namespaces{},
			core.ServiceAccounts{},
			core.Secrets{},
			authentication.SelfSubjectReviews{},
			authz.RBAC{},
			serviceaccount.Tokens{},
		}
	}
	return nil
}

// TestPieces runs scripts against the parts that they are about, picked alone. Parts do
// not know what stores their objects: memory is enough.
func TestPieces(t *testing.T) {
	t.Parallel()
	for script, folder := range map[string]string{
		"cascade": "answers", "certificates": "answers", "events": "api", "evict": "pieces", "limits": "pieces",
		"namespace-delete": "answers", "policies": "pieces", "quota": "answers", "tokens": "pieces",
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			p := params(folder, "memory")
			p.Dir, p.Files = "", []string{filepath.Join("testdata", folder, script+".txtar")}
			setup := p.Setup
			p.Setup = func(e *testscript.Env) error {
				e.Setenv("PIECES", script)
				return setup(e)
			}
			testscript.Run(t, p)
		})
	}
}

// servePieces is a program: "pieces SCRIPT serve --listen=ADDRESS
// --data-dir=DIR --storage=memory" serves the parts of a script as "sailplane
// serve" serves all.
func servePieces() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := assemble(ctx, os.Args[1], os.Args[3:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "pieces:", err)
		os.Exit(1)
	}
}

func assemble(ctx context.Context, script string, args []string) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	listen, dir := flags.String("listen", "", ""), flags.String("data-dir", "", "")
	flags.String("storage", "", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	parts := pieces(script)
	if parts == nil {
		return fmt.Errorf("there are no parts for %q", script)
	}
	kubeconfig := filepath.Join(*dir, "admin.kubeconfig")
	return controlplane.New("pieces").
		Listen(*listen).
		Storage(memory.Store{}).
		With(authn.Admin{Dir: filepath.Join(*dir, "pki"), Kubeconfig: kubeconfig}, parts,
			controlplane.ServerPartFunc(func(p *controlplane.ServerPlan) error {
				p.Work(controlplane.Work{Name: "ready line", Start: func(_ context.Context, plane *controlplane.Plane) error {
					_, err := fmt.Printf("sailplane: ready at https://%s in 0 ms, kubeconfig %s\n", plane.Server().Address(), kubeconfig)
					return err
				}})
				return nil
			})).
		Run(ctx)
}
