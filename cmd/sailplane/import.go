package main

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/manifest"
	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/served"
)

// imported holds the flags of "sailplane import".
type imported struct {
	kubeconfig string
	filename   string
	onConflict choice
	dryRun     bool
	workers    int
	form       manifest.Form
}

func importCommand() *cobra.Command {
	i := &imported{onConflict: choice{
		value: string(manifest.Skip), allowed: []string{string(manifest.Skip), string(manifest.Replace), string(manifest.Fail)},
	}}
	c := &cobra.Command{
		Use:   "import -f FILE|DIR|-",
		Short: "Apply exported objects to a running server",
		Long: `Apply exported objects to a running server, in an order that works, whatever the
order of the documents: namespaces first, definitions before their objects, and what
could refuse others last. A line for each object says what was done.

Nothing is written before all documents were read and found right. An object that is
there and differs is left as it is (--on-conflict). What an export leaves out makes
no difference. So the command can be run again, and that is how an import that was
interrupted, or had failures, goes on. The exit status is 1 if an object failed, or
differs with --on-conflict fail.`,
		Example: `  sailplane export | sailplane import --kubeconfig other.kubeconfig -f -
  sailplane import -f objects/ --dry-run --on-conflict replace`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return i.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	f := c.Flags()
	f.StringVar(&i.kubeconfig, "kubeconfig", "", kubeconfigUsage)
	f.StringVarP(&i.filename, "filename", "f", "", "file to apply, a directory with what is below it, or -: standard input")
	f.Var(&i.onConflict, "on-conflict", "what to do with an object that is there and differs: "+strings.Join(i.onConflict.allowed, ", "))
	f.BoolVar(&i.dryRun, "dry-run", false, "have the server check every object and write nothing")
	f.BoolVar(&i.form.Status, "with-status", false, "write the status, too, where a document has one")
	f.BoolVar(&i.form.ManagedFields, "with-managed-fields", false, "keep who wrote which fields, where a document says so")
	f.IntVar(&i.workers, "workers", 4, "how many objects are written at the same time")
	_ = c.MarkFlagFilename("kubeconfig")
	_ = c.MarkFlagFilename("filename")
	_ = c.RegisterFlagCompletionFunc("on-conflict", cobra.FixedCompletions(i.onConflict.allowed, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (i *imported) run(ctx context.Context, in io.Reader, out io.Writer) error {
	if i.filename == "" {
		return misused(errors.New("-f: name a file, a directory, or -, standard input"))
	}
	if i.workers < 1 {
		return misused(errors.New("--workers: want a number above 0"))
	}
	server, err := connect(i.kubeconfig)
	if err != nil {
		return err
	}
	all := &manifest.Import{
		Objects: server.objects, Catalog: &served.Catalog{Discovery: server.discovery}, Form: i.form, DryRun: i.dryRun,
		OnConflict: manifest.Conflict(i.onConflict.value), Workers: i.workers, Report: out,
	}
	return all.Run(ctx, i.filename, in)
}
