package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/manifest"
)

// export holds the flags of "sailplane export".
type export struct {
	kubeconfig string
	resources  []string
	namespaces []string
	selector   string
	output     string
	revision   string
	pageSize   int64
	form       manifest.Form
}

func exportCommand() *cobra.Command {
	e := &export{}
	c := &cobra.Command{
		Use:   "export",
		Short: "Write the objects of a running server as YAML",
		Long: `Write the objects of a running server as YAML, all as they were at one moment, in
an order that can be applied: namespaces and definitions first, what could refuse
others last. Two exports of the same state are the same, byte for byte.

With --output DIR/ each object has a file, which suits git: files that stay the same
are not touched, and those of objects that are gone are removed. Secrets are in the
export as they are. Only you can read its files.

Left out are
  events, Leases and requests for certificates, unless --resources names them
  what every server makes by itself: APIServices of its own groups, default roles
    that nobody wrote to, FlowSchemas and PriorityLevelConfigurations that are kept
    up to date, the ConfigMaps kube-root-ca.crt
  groups that other servers have
  of each object: uid, resourceVersion, generation, times of creation and deletion,
    ownerReferences (they name UIDs of this server), managedFields and status

Finalizers stay. With --namespace, what is in no namespace is left out, but for the
namespaces themselves.`,
		Example: `  sailplane export --output all.yaml
  sailplane export --kubeconfig admin.kubeconfig --resources 'secrets,*.example.com' --namespace shop --output shop/`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return e.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := c.Flags()
	f.StringVar(&e.kubeconfig, "kubeconfig", "", kubeconfigUsage)
	f.StringSliceVar(&e.resources, "resources", nil,
		"what to write, as in the encryption configuration: secrets, gadgets.example.com, *., *.example.com (default everything)")
	f.StringSliceVarP(&e.namespaces, "namespace", "n", nil, "namespaces to write, several times or with commas (default all)")
	f.StringVarP(&e.selector, "selector", "l", "", "write only objects with these labels, as in kubectl get")
	f.StringVarP(&e.output, "output", "o", "-", "file to write, or a directory, which ends in / or is there; -: standard output")
	f.StringVar(&e.revision, "revision", "", "resource version at which to read, which the server still has to have (default now)")
	f.Int64Var(&e.pageSize, "page-size", 500, "how many objects are read at once, fewer if they are large")
	f.BoolVar(&e.form.Status, "with-status", false, "write the status, but for kinds whose status only a server writes")
	f.BoolVar(&e.form.ManagedFields, "with-managed-fields", false, "write who wrote which fields")
	_ = c.MarkFlagFilename("kubeconfig")
	_ = c.MarkFlagFilename("output")
	return c
}

func (e *export) run(ctx context.Context, out, report io.Writer) error {
	if e.pageSize < 1 {
		return misused(errors.New("--page-size: want a number above 0"))
	}
	if _, err := labels.Parse(e.selector); err != nil {
		return misused(fmt.Errorf("--selector: %w", err))
	}
	server, err := connect(e.kubeconfig)
	if err != nil {
		return err
	}
	to, err := e.sink(out)
	if err != nil {
		return err
	}
	all := &manifest.Export{
		Objects: server.objects, Discovery: server.discovery, Resources: e.resources, Namespaces: e.namespaces,
		Selector: e.selector, Revision: e.revision, PageSize: e.pageSize, Form: e.form, Report: report,
	}
	return all.Run(ctx, to)
}

// sink is where the objects go.
func (e *export) sink(out io.Writer) (manifest.Sink, error) {
	if e.output == "-" || e.output == "" {
		return manifest.NewStream(out), nil
	}
	at, err := os.Stat(e.output)
	if strings.HasSuffix(e.output, "/") || strings.HasSuffix(e.output, string(os.PathSeparator)) || err == nil && at.IsDir() {
		return manifest.NewDirectory(e.output, e.selection())
	}
	return manifest.NewFile(e.output)
}

// selection describes which objects are written.
func (e *export) selection() string {
	var all []string
	for flag, values := range map[string][]string{"--resources": e.resources, "--namespace": e.namespaces} {
		if len(values) > 0 {
			all = append(all, flag+" "+strings.Join(slices.Sorted(slices.Values(values)), ","))
		}
	}
	if e.selector != "" {
		all = append(all, "--selector "+e.selector)
	}
	if len(all) == 0 {
		return "everything"
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}
