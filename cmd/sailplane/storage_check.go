package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sailplane-dev/sailplane/pkg/backup"
)

// checking holds the flags of "sailplane storage check".
type checking struct {
	taking     taking
	file       string
	encryption string
	output     choice
}

func checkCommand() *cobra.Command {
	k := &checking{output: choice{value: "text", allowed: []string{"text", "json"}}}
	k.taking.stored = place{flag: "storage", read: true}
	c := &cobra.Command{
		Use:   "check",
		Short: "Look into everything that is stored",
		Long: `Look into everything that a running server has stored, or a storage that no server
uses, or a backup: how many objects and bytes of each resource there are and in which
versions, which objects cannot be read, and which ones nobody needs any more:

  - without namespace: in a namespace that is not there
  - without owner: all of their owners are gone, or are kept by another server
  - without definition: custom resources of which no definition is stored, which
    nobody sees unless a program serves them itself

It reads everything as it was at one moment, and changes nothing. Objects that are
encrypted are looked into with --encryption-config. The exit status is 1 if something
was found.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return k.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	k.taking.flags(c)
	f := c.Flags()
	f.StringVar(&k.file, "backup", "", "backup to look into, in place of a server")
	f.StringVar(&k.encryption, "encryption-config", "", "encryption configuration (default that of --storage-config)")
	f.VarP(&k.output, "output", "o", "format: "+strings.Join(k.output.allowed, ", "))
	_ = c.MarkFlagFilename("backup")
	_ = c.MarkFlagFilename("encryption-config")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(k.output.allowed, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// errFound is why a check fails.
var errFound = errors.New("something is wrong with what is stored: see above")

func (k *checking) run(ctx context.Context, out, log io.Writer) error {
	survey, err := k.survey(ctx, log)
	if err != nil {
		return err
	}
	if k.output.value == "json" {
		to := json.NewEncoder(out)
		to.SetIndent("", "  ")
		err = to.Encode(survey)
	} else {
		err = writeSurvey(out, &survey)
	}
	if err == nil && !survey.Sound() {
		return errFound
	}
	return err
}

func (k *checking) survey(ctx context.Context, log io.Writer) (survey backup.Survey, err error) {
	say := &counted{teller: newTeller(log)}
	if k.file != "" {
		f, err := os.Open(k.file)
		if err != nil {
			return survey, err
		}
		defer f.Close()
		return backup.Check(ctx, io.TeeReader(f, say), k.encryption)
	}
	take, err := k.taking.source()
	if err != nil {
		return survey, err
	}
	if k.encryption == "" {
		k.encryption = k.taking.stored.encryption
	}
	err = through(ctx, take, func(ctx context.Context, from io.Reader) error {
		survey, err = backup.Check(ctx, io.TeeReader(from, say), k.encryption)
		return err
	})
	return survey, err
}

func writeSurvey(to io.Writer, s *backup.Survey) error {
	w := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	fmt.Fprintf(w, "at revision %d: %d keys, %s, and %d that expire\n\n", s.Info.Revision, s.Info.Keys, size(s.Info.Bytes), s.Info.Expiring)
	fmt.Fprintf(w, "RESOURCE\tOBJECTS\tSIZE\tVERSIONS\n")
	for _, name := range slices.Sorted(maps.Keys(s.Info.Resources)) {
		c := s.Info.Resources[name]
		var versions []string
		for _, v := range slices.Sorted(maps.Keys(s.Versions[name])) {
			versions = append(versions, v+": "+strconv.FormatInt(s.Versions[name][v], 10))
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", printable(name), c.Objects, size(c.Bytes), printable(strings.Join(versions, ", ")))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(to)
	for _, f := range []struct {
		what  string
		found backup.Findings
	}{
		{"cannot be read", s.Undecodable},
		{"without namespace", s.WithoutNamespace},
		{"without owner", s.WithoutOwner},
		{"without definition", s.WithoutDefinition},
	} {
		fmt.Fprintf(to, "%s: %d\n", f.what, f.found.Count)
		for _, text := range f.found.First {
			fmt.Fprintf(to, "  %s\n", printable(text))
		}
		if more := f.found.Count - int64(len(f.found.First)); more > 0 {
			fmt.Fprintf(to, "  and %d more\n", more)
		}
	}
	if s.Unread > 0 {
		fmt.Fprintf(to, "not looked into, as they are encrypted: %d (--encryption-config)\n", s.Unread)
	}
	return nil
}
