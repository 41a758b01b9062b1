package main

import (
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
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(serveCommand(), configCommand(), storageCommand(), envtest.Command(), versionCommand())
	return root
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
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "sailplane %s (%s, %s)\n", info.GitVersion, info.GoVersion, info.Platform)
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
