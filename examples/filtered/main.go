// Command filtered serves lists and watches that have only what the caller may
// get.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:6443", "address to serve HTTPS at")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := controlplane.New("filtered").
		Listen(*listen).
		Storage(memory.Store{}).
		With(
			authn.Admin{Kubeconfig: "admin.kubeconfig"},
			authz.Func("drafts belong to their writers", ownDrafts),
			authz.RBAC{},
			authz.FilteredLists{Resources: []schema.GroupResource{{Resource: "configmaps"}}},
			core.Namespaces{}, core.ConfigMaps{}, core.Secrets{},
		).
		Run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "filtered:", err)
		os.Exit(1)
	}
}

// ownDrafts lets everybody get the ConfigMaps whose names start with theirs.
func ownDrafts(_ context.Context, a authz.Attributes) (authz.Decision, string, error) {
	if a.GetVerb() == "get" && a.GetResource() == "configmaps" && strings.HasPrefix(a.GetName(), a.GetUser().GetName()+"-") {
		return authz.Allow, "it is theirs", nil
	}
	return authz.NoOpinion, "", nil
}
