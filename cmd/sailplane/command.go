package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/envtest"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "sailplane",
		Short:         "A Kubernetes control plane without nodes",
		Version:       versionText(),
		SilenceUsage:  true,
		SilenceErrors: true,
		// Without it, an unknown command is no error of the root's arguments.
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddCommand(serveCommand(), statusCommand(), serversCommand(), tenantsCommand(), configCommand(), kubeconfigCommand(), pkiCommand(),
		auditCommand(),
		backupCommand(), restoreCommand(), storageCommand(), exportCommand(), importCommand(), verifyCommand(), envtest.Command(),
		versionCommand())
	return careful(root)
}

// careful marks errors of flags and arguments as those of the caller.
func careful(c *cobra.Command) *cobra.Command {
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return misused(err) })
	args := c.Args
	c.Args = func(cmd *cobra.Command, given []string) error {
		if args == nil {
			args = cobra.ArbitraryArgs
		}
		return misused(args(cmd, given))
	}
	for _, child := range c.Commands() {
		careful(child)
	}
	return c
}

// versionText is the version of this program, that of the Kubernetes that it is
// compatible with, and what it was built from.
func versionText() string {
	v := controlplane.Version()
	kubernetes, own, _ := strings.Cut(v.GitVersion, "+sailplane")
	own = cmp.Or(strings.TrimPrefix(own, "."), "(devel)")
	text := fmt.Sprintf("sailplane %s, Kubernetes %s, %s %s", own, kubernetes, v.GoVersion, v.Platform)
	if v.GitCommit != "" {
		text += fmt.Sprintf(", commit %.12s (%s)", v.GitCommit, v.GitTreeState)
	}
	return text
}

func versionCommand() *cobra.Command {
	output := choice{value: "text", allowed: []string{"text", "json", "yaml"}}
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info := controlplane.Version()
			switch output.value {
			case "json":
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(info)
			case "yaml":
				b, err := yaml.Marshal(info)
				if err != nil {
					return err
				}
				_, err = cmd.OutOrStdout().Write(b)
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionText())
			return err
		},
	}
	c.Flags().VarP(&output, "output", "o", "format: "+strings.Join(output.allowed, ", "))
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(output.allowed, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// choice is a flag whose value is one of a few words.
type choice struct {
	value   string
	allowed []string
}

func (c *choice) String() string { return c.value }
func (c *choice) Type() string   { return "string" }

func (c *choice) Set(s string) error {
	if !slices.Contains(c.allowed, s) {
		return fmt.Errorf("want one of: %s", strings.Join(c.allowed, ", "))
	}
	c.value = s
	return nil
}
