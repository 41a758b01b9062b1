// Command clusterregistry serves a list of clusters that tools share, and exports it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	inventory "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sailplane-dev/sailplane/examples/clusterregistry/api/v1alpha1"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

// manager is the name of the registry: of its fields, and in what it shows and exports.
const manager = "clusterregistry"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if command().ExecuteContext(ctx) != nil {
		os.Exit(1)
	}
}

func command() *cobra.Command {
	c := &cobra.Command{Use: manager, Short: "A list of clusters that tools share", SilenceUsage: true}
	var kubeconfig string
	c.PersistentFlags().StringVar(&kubeconfig, "kubeconfig", "admin.kubeconfig", "of the registry; serve writes that of an administrator")
	c.AddCommand(serveCommand(&kubeconfig), exportCommand(&kubeconfig))
	return c
}

func serveCommand(kubeconfig *string) *cobra.Command {
	var s config
	c := &cobra.Command{Use: "serve", Short: "Serve the registry", Args: cobra.NoArgs}
	f := c.Flags()
	listen := f.String("listen", "127.0.0.1:6443", "address to serve HTTPS at")
	data := f.String("data", "data/clusterregistry.db", "file of the SQLite database")
	f.StringVar(&s.tokens, "tokens", "", `file of users, with lines of token,user,uid,"group1,group2"`)
	f.BoolVar(&s.watch, "watch", true, "serve watches; false: gets and lists only")
	f.DurationVar(&s.health, "health", 0, "how often to ask each cluster for its version; 0: never")
	f.StringVar(&s.user, "kubeconfig-user", "", "YAML file with the user of exported kubeconfigs: exec or auth-provider")
	f.StringVar(&s.provider, "access-provider", "", "serve ClusterProfiles, whose clients get credentials from what they know by this name")
	c.RunE = func(c *cobra.Command, _ []string) error {
		parts, err := s.parts()
		if err != nil {
			return err
		}
		return controlplane.New(manager).Listen(*listen).Storage(sqlite.File{Path: *data}).
			With(authn.Admin{Kubeconfig: *kubeconfig}).With(parts...).Run(c.Context())
	}
	return c
}

// config is what a registry serves, as the flags of serve say.
type config struct {
	tokens, user, provider string
	watch                  bool
	health                 time.Duration
}

func (s config) parts() ([]controlplane.Part, error) {
	user, err := readUser(s.user)
	lists := authz.FilteredLists{Resources: []schema.GroupResource{{Group: v1alpha1.GroupVersion().Group, Resource: "clusters"}}}
	parts := []controlplane.Part{authz.RBAC{}, core.Namespaces{}, registry(s.watch), &export{user: user}}
	if s.tokens != "" {
		parts = append(parts, authn.Tokens{File: s.tokens})
	}
	if s.provider != "" {
		parts = append(parts, profiles(s.provider, s.watch))
		lists.Resources = append(lists.Resources, inventory.GroupVersion.WithResource("clusterprofiles").GroupResource())
	}
	if s.health > 0 {
		parts = append(parts, health(s.health))
	}
	return append(parts, lists), err
}

// newClient makes a client of clusters.
func newClient(to *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	to = rest.CopyConfig(to)
	to.QPS = -1 // the server has limits of its own
	return client.New(to, client.Options{Scheme: scheme})
}
