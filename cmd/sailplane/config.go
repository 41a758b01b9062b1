package main

import (
	"github.com/spf13/cobra"
)

func configCommand() *cobra.Command {
	s := &settings{}
	c := &cobra.Command{
		Use:   "config",
		Short: "Print the configuration of serve",
		Long: `Print the configuration that "sailplane serve" would have with the same flags,
environment and file: every field, what it means, and where its value comes from if
it is no default. Without any it prints the defaults. It is a file for --config.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, _, err := s.document()
			if err != nil {
				return err
			}
			return d.Write(cmd.OutOrStdout())
		},
	}
	s.flags(c)
	return c
}
