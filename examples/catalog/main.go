// Command catalog is a service catalog: administrators edit planspecs, and users see the public
// ones as plans, without what they cost.
package main

import (
	"context"
	"embed"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

//go:embed crds
var crds embed.FS

func main() {
	listen := flag.String("listen", "127.0.0.1:6443", "address to serve HTTPS at")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := controlplane.New("catalog").
		Listen(*listen).
		Storage(memory.Store{}).
		With(
			authn.Admin{Kubeconfig: "admin.kubeconfig"},
			authz.RBAC{},
			crd.Definitions{FS: crds},
			apis.NewGroup(schema.GroupVersion{Group: "shop.example.com", Version: "v1"}, nil, nil, plans()),
		).
		Run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "catalog:", err)
		os.Exit(1)
	}
}

// plans are views of planspecs. They cannot be created or deleted, only described.
func plans() *apis.Definition {
	return apis.Project[Plan, PlanList]("plans", apis.Over("catalog.example.com/v1", "planspecs"), publish, accept,
		apis.ClusterScoped(),
		apis.Verbs("get", "list", "watch", "update", "patch"),
		apis.Columns(
			func(p *Plan) []any { return []any{p.Spec.Price, p.Spec.Description} },
			metav1.TableColumnDefinition{Name: "Price", Type: "integer"},
			metav1.TableColumnDefinition{Name: "Description", Type: "string"},
		))
}

// publish fills in what users see of a planspec, and tells whether they see it.
func publish(spec *planSpec, plan *Plan) (shown bool) {
	plan.Spec = spec.Spec.Offer
	return spec.Spec.Public
}

// accept puts what a user wrote into the planspec: the description may be changed, the price may not.
func accept(plan *Plan, spec *planSpec) error {
	if plan.Spec.Price != spec.Spec.Price {
		return field.Forbidden(field.NewPath("spec", "price"), "it is that of the planspec")
	}
	spec.Spec.Description = plan.Spec.Description
	return nil
}
