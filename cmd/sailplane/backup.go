package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/server"
	"github.com/sailplane-dev/sailplane/pkg/backup"
)

// taking holds the flags of "sailplane backup".
type taking struct {
	settings settings
	stored   place
	prefix   string
	list     string
}

func backupCommand() *cobra.Command {
	t := &taking{stored: place{flag: "storage"}}
	c := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write a backup of everything that a running server has stored",
		Long: `Write a backup of everything that a running server has stored, as it is at one
moment: all objects of all planes. Writes go on meanwhile. FILE may be -, for the
standard output.

It asks the server, as its administrator, or as another user who may get ` + backup.Path + `. With
--storage it reads a storage that no server uses.

What is stored encrypted is encrypted in the backup, which has no key of the
encryption configuration: keep that apart from it. Private keys and certificates of
the server (DATA-DIR/pki) are not in it either; without them, a server makes new
ones, and kubeconfigs and tokens of before are refused.

With --list it says what is in a backup, after a check of all of it.`,
		Example: `  sailplane backup --data-dir data shop.backup
  sailplane backup --list shop.backup
  sailplane backup --kubeconfig admin.kubeconfig - | ssh vault 'cat > shop.backup'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case t.list != "" && len(args) == 0:
				return listBackup(cmd.Context(), t.list, cmd.OutOrStdout())
			case t.list != "" || len(args) != 1:
				return misused(errors.New("want the name of one file: sailplane backup FILE, or sailplane backup --list FILE"))
			}
			return t.run(cmd.Context(), args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	t.settings.only(c, "data-dir", "kubeconfig")
	c.Flags().Lookup("kubeconfig").Usage = "kubeconfig to ask with (default admin.kubeconfig in --data-dir)"
	t.stored.flags(c, "storage that no server uses, in place of a running server")
	c.Flags().StringVar(&t.prefix, "prefix", "", "with --storage: what the keys start with (default storage.prefix of a configuration, or /registry)")
	c.Flags().StringVar(&t.list, "list", "", "say what is in a backup, and write none")
	_ = c.MarkFlagFilename("list")
	return c
}

func (t *taking) run(ctx context.Context, file string, out, log io.Writer) error {
	say := &counted{teller: newTeller(log)}
	take, err := t.source()
	if err != nil {
		return err
	}
	begun := time.Now()
	var info backup.Info
	size := int64(0)
	if file == "-" {
		to := bufio.NewWriterSize(out, 256<<10)
		info, err = take(ctx, io.MultiWriter(to, say))
		err = errors.Join(err, to.Flush())
		size = say.n
	} else {
		info, size, err = backup.WriteFile(file, func(to *bufio.Writer) (backup.Info, error) { return take(ctx, io.MultiWriter(to, say)) })
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(log, "backup of %s at revision %d: %d keys, %d bytes in the file, in %v\n",
		info.Taken.Format(time.RFC3339), info.Revision, info.Keys+info.Expiring, size, time.Since(begun).Round(time.Millisecond))
	if len(info.Encrypted) > 0 {
		fmt.Fprintf(log, "keep the encryption configuration apart from it: %s\n", encrypted(info))
	}
	fmt.Fprintln(log, "not in it: the private keys and certificates of the server")
	return nil
}

// counted says how many bytes there were, now and then.
type counted struct {
	*teller
	n int64
}

// Write implements io.Writer.
func (c *counted) Write(b []byte) (int, error) {
	c.n += int64(len(b))
	c.bytes("backup", c.n)
	return len(b), nil
}

// source returns what writes the backup.
func (t *taking) source() (func(context.Context, io.Writer) (backup.Info, error), error) {
	if t.stored.url != "" || t.stored.config != "" {
		s, prefix, err := t.stored.open()
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, to io.Writer) (backup.Info, error) {
			return backup.WriteStored(ctx, s, cmp.Or(t.prefix, prefix), to)
		}, nil
	}
	_, c, err := t.settings.document()
	if err != nil {
		return nil, err
	}
	kubeconfig := server.Kubeconfig(c)
	return func(ctx context.Context, to io.Writer) (backup.Info, error) {
		answer, err := page{backup.Path, "backup", "backup.Endpoint{}"}.get(ctx, kubeconfig)
		if err != nil {
			return backup.Info{}, err
		}
		defer answer.Close()
		through := io.TeeReader(answer, to)
		info, err := backup.Read(ctx, through)
		if err == nil {
			_, err = io.Copy(io.Discard, through) // nothing, or an end that was cut off
		}
		return info, err
	}, nil
}

// listBackup says what is in a backup.
func listBackup(ctx context.Context, file string, to io.Writer) error {
	f := os.Stdin
	if file != "-" {
		var err error
		if f, err = os.Open(file); err != nil {
			return err
		}
		defer f.Close()
	}
	info, err := backup.Read(ctx, bufio.NewReaderSize(f, 256<<10))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	w := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	fmt.Fprintf(w, "taken\t%s\nrevision\t%d\nstorage\t%s\nprogram\t%s\nprefix\t%s\n", info.Taken.Format(time.RFC3339), info.Revision, info.Engine,
		info.Program, info.Prefix)
	fmt.Fprintf(w, "keys\t%d, and %d that expire\nbytes\t%d\nchecksum\t%s\n", info.Keys, info.Expiring, info.Bytes, info.Checksum)
	if len(info.Encrypted) > 0 {
		fmt.Fprintf(w, "encrypted\t%s\n", encrypted(info))
	}
	fmt.Fprintf(w, "\nRESOURCE\tOBJECTS\tBYTES\n")
	for _, name := range slices.Sorted(maps.Keys(info.Resources)) {
		c := info.Resources[name]
		fmt.Fprintf(w, "%s\t%d\t%d\n", name, c.Objects, c.Bytes)
	}
	return w.Flush()
}

// encrypted says which values are encrypted.
func encrypted(info backup.Info) string {
	text := ""
	for _, by := range slices.Sorted(maps.Keys(info.Encrypted)) {
		text += ", " + strconv.FormatInt(info.Encrypted[by], 10) + " values with " + by
	}
	return text[2:]
}
