package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/server"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/insight"
	"github.com/sailplane-dev/sailplane/pkg/storage"
)

// maintaining is a command for the storage of a running server, or one that no server uses.
type maintaining struct {
	settings settings
	stored   place
	do       string // as insight.MaintenancePath has it
	offline  func(context.Context, controlplane.Storage) error
}

func compactCommand() *cobra.Command {
	return (&maintaining{do: "compact", offline: storage.Compact}).command(&cobra.Command{
		Use:   "compact",
		Short: "Drop the history of a storage",
		Long: `Drop the history of a storage: old versions of objects, and deleted ones. Servers do so
by themselves, after some minutes and above a size. Clients that watch from the past
get 410 (Expired), and list again.`,
	})
}

func defragCommand() *cobra.Command {
	return (&maintaining{do: "defragment", offline: storage.Defragment}).command(&cobra.Command{
		Use:   "defrag",
		Short: "Have a storage give back the room that it does not need",
		Long: `Have a storage give back the room that it does not need, by writing anew what it has:
there has to be room for a second copy. Writes wait meanwhile, and with an etcd all
requests. Compact it before, or there is less to give back.

An embedded etcd and a SQLite file do so by themselves when much of them is free, and
PostgreSQL uses what is free for what comes. A cluster is defragmented one member
after the other.`,
	})
}

func (m *maintaining) command(c *cobra.Command) *cobra.Command {
	m.stored = place{flag: "storage", read: true}
	c.Args = cobra.NoArgs
	c.RunE = func(cmd *cobra.Command, _ []string) error { return m.run(cmd.Context(), cmd.OutOrStdout()) }
	m.settings.only(c, "data-dir", "kubeconfig")
	c.Flags().Lookup("kubeconfig").Usage = "kubeconfig to ask with (default admin.kubeconfig in --data-dir)"
	m.stored.flags(c, "storage that no server uses, in place of a running server")
	return c
}

func (m *maintaining) run(ctx context.Context, out io.Writer) error {
	if m.stored.isNamed() {
		s, _, err := m.stored.open()
		if err != nil {
			return err
		}
		if err := m.offline(ctx, s); err != nil {
			return err
		}
		fmt.Fprintln(out, "done")
		return nil
	}
	_, c, err := m.settings.document()
	if err != nil {
		return err
	}
	p := page{
		path: insight.MaintenancePath, method: http.MethodPost, query: map[string]string{"do": m.do}, what: "storage",
		part: "insight.Maintenance{}",
	}
	answer, err := p.get(ctx, server.Kubeconfig(c))
	if err != nil {
		return err
	}
	defer answer.Close()
	b, err := io.ReadAll(answer)
	if err != nil {
		return err
	}
	var done insight.Maintained
	if err := json.NewDecoder(bytes.NewReader(b)).Decode(&done); err != nil {
		return fmt.Errorf("read the server's answer: %w", err)
	}
	fmt.Fprintf(out, "%s: size %s, was %s\n", done.After.Engine, known(done.After.FileBytes, size), known(done.Before.FileBytes, size))
	return nil
}
