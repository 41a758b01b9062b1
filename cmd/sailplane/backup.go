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
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/server"
	"github.com/sailplane-dev/sailplane/pkg/backup"
)

// taking holds the flags of "sailplane backup".
type taking struct {
	settings settings
	stored   place
	prefix   string
	list     string
	keep     int
	private  backup.Private
}

func backupCommand() *cobra.Command {
	t := &taking{stored: place{flag: "storage", read: true}}
	c := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write a backup of everything that a running server has stored",
		Long: `Write a backup of everything that a running server has stored, as it is at one
moment: all objects of all planes. Writes go on meanwhile. FILE may be -, for the
standard output, or a directory, where the file is named by the time.

It asks the server, as its administrator, or as another user who may get ` + backup.Path + `. With
--storage it reads a storage that no server uses.

What is stored encrypted is encrypted in the backup, which has no key of the
encryption configuration: keep that apart from it. Private keys and certificates of
the server are not in it either, unless --with-pki names their directory (DATA-DIR/pki)
and --pki-key-file a file with the key that seals them: without them, a restored
server makes new ones, and kubeconfigs and tokens of before are refused.

With --list it says what is in a backup, after a check of all of it.`,
		Example: `  sailplane backup --data-dir data shop.backup
  sailplane backup --data-dir data --keep 7 /var/backups/sailplane/
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
	t.flags(c)
	c.Flags().IntVar(&t.keep, "keep", 0, "with a directory: how many backups stay there; older ones are removed (default all)")
	c.Flags().StringVar(&t.private.Dir, "with-pki", "", "directory with private keys and certificates to add, sealed")
	c.Flags().StringVar(&t.private.KeyFile, "pki-key-file", "", "file with the key that seals them: openssl rand -hex 32")
	_ = c.MarkFlagDirname("with-pki")
	_ = c.MarkFlagFilename("pki-key-file")
	c.Flags().StringVar(&t.list, "list", "", "say what is in a backup, and write none")
	_ = c.MarkFlagFilename("list")
	return c
}

// flags adds those which say of what a backup is taken.
func (t *taking) flags(c *cobra.Command) {
	t.settings.only(c, "data-dir", "kubeconfig")
	c.Flags().Lookup("kubeconfig").Usage = "kubeconfig to ask with (default admin.kubeconfig in --data-dir)"
	t.stored.flags(c, "storage that no server uses, in place of a running server")
	c.Flags().StringVar(&t.prefix, "prefix", "",
		"with --storage: what the keys start with (default storage.prefix of a configuration, or /registry)")
}

// lent is the resource of EtcdStorages in an [backup.Info].
const lent = "etcdstorages.storage.sailplane.dev"

func (t *taking) run(ctx context.Context, file string, out, log io.Writer) error {
	say := &counted{teller: newTeller(log)}
	if (t.private.Dir == "") != (t.private.KeyFile == "") {
		return misused(errors.New("--with-pki, --pki-key-file: want both, or none"))
	}
	take, err := t.source()
	if err != nil {
		return err
	}
	if t.private.Dir != "" {
		take = sealing(take, t.private)
	}
	begun := time.Now()
	write := func(to io.Writer) (backup.Info, error) { return take(ctx, io.MultiWriter(to, say)) }
	var info backup.Info
	switch stat, err := os.Stat(file); {
	case file == "-":
		if info, err = writeOut(out, write); err != nil {
			return err
		}
	case strings.HasSuffix(file, "/") || err == nil && stat.IsDir():
		if file, info, _, err = (backup.Directory{Path: file, Name: "sailplane", Keep: t.keep}).Write(write); err != nil {
			return err
		}
	default:
		if info, _, err = backup.WriteFile(file, write); err != nil {
			return err
		}
	}
	fmt.Fprintf(log, "%s: backup of %s at revision %d: %d keys, %s, in %v\n",
		file, info.Taken.Format(time.RFC3339), info.Revision, info.Keys+info.Expiring, size(say.n),
		time.Since(begun).Round(time.Millisecond))
	if len(info.Encrypted) > 0 {
		fmt.Fprintf(log, "keep the encryption configuration apart from it: %s\n", encrypted(info))
	}
	if t.stored.isNamed() && info.Resources[lent].Objects > 0 {
		fmt.Fprintln(log, "not in it: what EtcdStorages have in other storages; a backup of the running server has it")
	}
	if info.Private {
		fmt.Fprintln(log, "keep the key that seals the private keys and certificates apart from it")
	} else {
		fmt.Fprintln(log, "not in it: the private keys and certificates of the server (--with-pki)")
	}
	return nil
}

// writeOut has a backup written to the standard output.
func writeOut(out io.Writer, write func(io.Writer) (backup.Info, error)) (backup.Info, error) {
	to := bufio.NewWriterSize(out, 256<<10)
	info, err := write(to)
	if err == nil {
		err = to.Flush()
	}
	return info, err
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
func (t *taking) source() (writing, error) {
	if t.stored.isNamed() {
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
		return page{path: backup.Path, what: "backup", part: "backup.Endpoint{}"}.backup(ctx, kubeconfig, to)
	}, nil
}

// backup gets a backup from the server of a kubeconfig, and checks it.
func (p page) backup(ctx context.Context, kubeconfig string, to io.Writer) (backup.Info, error) {
	answer, err := p.get(ctx, kubeconfig)
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
}

// writing writes a backup.
type writing = func(context.Context, io.Writer) (backup.Info, error)

// sealing adds private files to what is written.
func sealing(take writing, p backup.Private) writing {
	return func(ctx context.Context, to io.Writer) (info backup.Info, err error) {
		err = through(ctx, take, func(ctx context.Context, from io.Reader) error {
			info, err = p.Add(ctx, from, to)
			return err
		})
		return info, err
	}
}

// through has a backup read while it is written.
func through(ctx context.Context, take writing, read func(context.Context, io.Reader) error) error {
	from, write := io.Pipe()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		_, err := take(ctx, write)
		_ = write.CloseWithError(err) // it never fails
		return err
	})
	err := read(ctx, from)
	_ = from.CloseWithError(err) // it never fails
	if failed := group.Wait(); failed != nil && !errors.Is(failed, err) {
		return failed // why there was nothing more to read
	}
	return err
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
	fmt.Fprintf(w, "taken\t%s\nrevision\t%d\nstorage\t%s\nprogram\t%s\n",
		info.Taken.Format(time.RFC3339), info.Revision, info.Engine, info.Program)
	if info.EtcdStorage == "" {
		fmt.Fprintf(w, "prefix\t%s\n", info.Prefix)
	} else {
		fmt.Fprintf(w, "etcdstorage\t%s\n", info.EtcdStorage)
	}
	fmt.Fprintf(w, "keys\t%d, and %d that expire\nbytes\t%d\nchecksum\t%s\n", info.Keys, info.Expiring, info.Bytes, info.Checksum)
	if info.Lent.Objects > 0 {
		fmt.Fprintf(w, "of etcdstorages\t%d keys, %d bytes\n", info.Lent.Objects, info.Lent.Bytes)
	}
	if info.Private {
		fmt.Fprintf(w, "private files\tyes, sealed\n")
	}
	if len(info.Encrypted) > 0 {
		fmt.Fprintf(w, "encrypted\t%s\n", encrypted(info))
	}
	if info.EtcdStorage != "" {
		return w.Flush() // what its keys are of, only its API server knows
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
