package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sailplane-dev/sailplane/pkg/auditing"
)

func auditCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "audit",
		Short: "Work with audit logs",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(auditVerifyCommand())
	return c
}

func auditVerifyCommand() *cobra.Command {
	var heads []string
	c := &cobra.Command{
		Use:   "verify FILE...",
		Short: "Verify the chain of hashes in audit logs",
		Long: `Verify the chain of hashes in the files of an audit log (audit.chain), the oldest
first. It says how many events they hold, or which line does not follow the one
before, and ends with status 1.

It cannot see what is missing at the end, or a chain that was written anew: keep the
head that it prints on another machine, and name it with --head the next time.

  sailplane audit verify audit-*.log audit.log`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			v, err := auditing.Verify(files, heads...)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if v.Unchained > 0 {
				_, _ = fmt.Fprintf(out, "%d events before the chain begins are not held by it\n", v.Unchained)
			}
			if v.Mended > 0 {
				_, _ = fmt.Fprintf(out, "%d times a line has no end: the server was killed while it wrote\n", v.Mended)
			}
			_, err = fmt.Fprintf(out, "intact: %d events, numbers %d to %d, from %s to %s\nhead: %s\n",
				v.Events, v.First, v.Last, v.From.UTC().Format(time.RFC3339), v.To.UTC().Format(time.RFC3339), v.Head)
			return err
		},
	}
	c.Flags().StringArrayVar(&heads, "head", nil, "head that was printed earlier, which has to be in the files; may be repeated")
	return c
}
