package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/served"
)

// rewriting holds the flags of commands that write objects again.
type rewriting struct {
	kubeconfig string
	state      string
	resources  []string
	dryRun     bool
	pageSize   int64
	workers    int
}

func reencryptCommand() *cobra.Command {
	r := &rewriting{}
	c := &cobra.Command{
		Use:   "reencrypt",
		Short: "Write every object again, encrypted with the key that is now first",
		Long: `Write every object again, encrypted with the key that is now first.

Stored objects keep the form in which they were written. After encryption was
turned on, or another key was put first, this command brings old objects up to
date. It updates each object with its own content. The server writes only the
objects whose stored form is out of date, so running the command twice does no
harm. Objects that others write or delete meanwhile are skipped.

With --state, the next run continues one that was interrupted or had failures.`,
		Example: `  sailplane storage reencrypt --kubeconfig admin.kubeconfig --resources secrets,*.example.com`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return r.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	r.flags(c)
	c.Flags().StringSliceVar(&r.resources, "resources", nil,
		"what to write, as in the encryption configuration: secrets, gadgets.example.com, *., *.example.com (default everything)")
	return c
}

// flags adds the flags.
func (r *rewriting) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&r.kubeconfig, "kubeconfig", "", kubeconfigUsage)
	f.BoolVar(&r.dryRun, "dry-run", false, "have the server check every update and write nothing")
	f.StringVar(&r.state, "state", "", "file to keep the progress in, from which the next run continues; removed when everything is done")
	f.Int64Var(&r.pageSize, "page-size", 500, "how many objects are read at once")
	f.IntVar(&r.workers, "workers", 4, "how many objects are written at the same time")
	_ = c.MarkFlagFilename("kubeconfig")
	_ = c.MarkFlagFilename("state")
}

func (r *rewriting) run(ctx context.Context, out io.Writer) error {
	w, targets, err := r.open(ctx, out)
	if err != nil {
		return err
	}
	return w.all(ctx, targets)
}

// open returns what writes, and what there is to write.
func (r *rewriting) open(ctx context.Context, out io.Writer) (*rewriter, []served.Resource, error) {
	if r.pageSize < 1 || r.workers < 1 {
		return nil, nil, misused(errors.New("--page-size, --workers: want numbers above 0"))
	}
	server, err := connect(r.kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	w := &rewriter{
		objects: server.objects, dryRun: r.dryRun, pageSize: r.pageSize, workers: r.workers, out: out,
		progress: &progress{Server: server.host, Begun: time.Now(), Done: map[string]tally{}},
	}
	if r.state != "" && !r.dryRun {
		if err := w.progress.load(r.state); err != nil {
			return nil, nil, fmt.Errorf("--state: %w", err)
		}
	}
	found, err := served.Find(ctx, served.Query{
		Discovery: server.discovery, Objects: server.objects, Verbs: []string{"list", "update"}, Patterns: r.resources,
	})
	if err != nil {
		return nil, nil, err
	}
	w.failures.add(found.Failed...)
	return w, found.Resources, nil
}

// all writes the objects of every resource and reports the outcome.
func (w *rewriter) all(ctx context.Context, targets []served.Resource) error {
	begun := time.Now()
	var sum tally
	for _, t := range targets {
		if before, ok := w.progress.Done[t.Name()]; ok {
			fmt.Fprintf(w.out, "%s: already done, %d objects\n", t.Name(), before.total())
			continue
		}
		counted, err := w.resource(ctx, t)
		sum.plus(counted)
		if err != nil && ctx.Err() == nil {
			w.failures.add(fmt.Sprintf("%s: %v", t.Name(), err))
		}
		if ctx.Err() != nil {
			return errors.New("interrupted: to continue, run the command again, with the same --state if you set it")
		}
	}
	fmt.Fprintf(w.out, "%d resources, %s in %s\n", len(targets), sum.String(w.dryRun), time.Since(begun).Round(time.Millisecond))
	if err := w.failures.err(); err != nil {
		return err
	}
	return w.progress.remove()
}
