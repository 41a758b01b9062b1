package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/sailplane-dev/sailplane/pkg/backup"
)

// restoring holds the flags of "sailplane restore".
type restoring struct {
	to      place
	options backup.Options
}

func restoreCommand() *cobra.Command {
	r := &restoring{to: place{flag: "to"}}
	c := &cobra.Command{
		Use:   "restore FILE",
		Short: "Fill a storage with a backup",
		Long: `Fill a storage with a backup, of whichever engine it was taken. FILE may be -, for
the standard input. No server may be running on the storage.

The backup is checked first, and what is encrypted is decrypted, with the encryption
configuration of --to-config or --encryption-config: nothing is written unless all of
it can be read.

Revisions go on above all that clients have seen. A client gets 410 (Expired) for what
it saw, and lists again: informers and controllers go on, and need no restart. The
revisions of an etcd cluster that runs cannot be raised: without
--accept-new-revisions, a restore is refused there, unless the backup is its own.

A restore that was interrupted is continued when the same command is run again.
Until then no server starts on the storage.`,
		Example: `  sailplane restore shop.backup --to sqlite:data/state.db
  sailplane restore shop.backup --to-config server.yaml --overwrite`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.run(cmd.Context(), args[0], cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	r.to.flags(c, "storage to fill")
	f := c.Flags()
	f.StringVar(&r.options.EncryptionConfigFile, "encryption-config", "",
		"encryption configuration of the servers (default that of --to-config)")
	f.BoolVar(&r.options.Overwrite, "overwrite", false, "replace what the storage has; else it has to be empty")
	f.BoolVar(&r.options.AcceptNewRevisions, "accept-new-revisions", false,
		"fill a cluster whose revisions may be smaller than those clients have seen: restart all clients then")
	f.StringVar(&r.options.Private.Dir, "with-pki", "", "directory for the private keys and certificates of the backup")
	f.StringVar(&r.options.Private.KeyFile, "pki-key-file", "", "file with the key that sealed them")
	_ = c.MarkFlagDirname("with-pki")
	_ = c.MarkFlagFilename("encryption-config", "pki-key-file")
	return c
}

func (r *restoring) run(ctx context.Context, file string, in io.Reader, out, log io.Writer) (err error) {
	if (r.options.Private.Dir == "") != (r.options.Private.KeyFile == "") {
		return misused(errors.New("--with-pki, --pki-key-file: want both, or none"))
	}
	to, _, err := r.to.open()
	if err != nil {
		return err
	}
	if r.options.EncryptionConfigFile == "" {
		r.options.EncryptionConfigFile = r.to.encryption
	}
	f, err := seekable(file, in)
	if err != nil {
		return err
	}
	defer f.Close()
	say := newTeller(log)
	r.options.Progress = func(pass int, n int64) { say.count([]string{"checked", "restored", "compared"}[min(pass, 2)], n) }
	begun := time.Now()
	done, err := backup.Restore(ctx, f, to, r.options)
	if ctx.Err() != nil {
		return errors.New("interrupted: to continue, run the same command again; until then no server starts on the storage")
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "restored the backup of %s in %v: %d keys, %d written, %d deleted; %d had expired\n",
		done.Info.Taken.Format(time.RFC3339), time.Since(begun).Round(time.Millisecond), done.Info.Keys+done.Info.Expiring,
		done.Written, done.Deleted, done.Expired)
	fmt.Fprintf(out, "compared: the storage has the keys and values of the backup, SHA-256 %s\n", done.Info.SHA256)
	if done.Continuous {
		fmt.Fprintf(out, "revisions go on at %d, above those of before: clients list again, and need no restart\n", done.Revision)
	} else {
		fmt.Fprintf(out, "RESTART ALL CLIENTS: revisions go on at %d, which they may have seen before\n", done.Revision)
	}
	switch {
	case r.options.Private.Dir != "":
		fmt.Fprintf(out, "private keys and certificates are in %s\n", r.options.Private.Dir)
	case done.Info.Private:
		fmt.Fprintln(out, "not restored: the private keys and certificates that the backup has (--with-pki)")
	default:
		fmt.Fprintln(out, "not in the backup: the private keys and certificates of the server")
	}
	return nil
}

// seekable opens a file. The standard input is kept in one that is gone when it is closed.
func seekable(file string, in io.Reader) (*os.File, error) {
	if file != "-" {
		return os.Open(file)
	}
	f, err := os.CreateTemp("", "sailplane-restore-")
	if err != nil {
		return nil, fmt.Errorf("keep the standard input: %w: set TMPDIR to a directory with room", err)
	}
	if err = os.Remove(f.Name()); err == nil { // it lasts as long as it is open
		_, err = io.Copy(f, in)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("keep the standard input: %w: set TMPDIR to a directory with room", err), f.Close())
	}
	return f, nil
}
