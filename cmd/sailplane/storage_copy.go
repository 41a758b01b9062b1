package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sailplane-dev/sailplane/pkg/storage"
)

// copying holds the flags of "sailplane storage copy".
type copying struct {
	from, to place
	prefix   string
	options  storage.Options
}

func copyCommand() *cobra.Command {
	m := &copying{from: place{flag: "from", read: true}, to: place{flag: "to"}}
	c := &cobra.Command{
		Use:   "copy",
		Short: "Copy everything from one storage to another one",
		Long: `Copy everything from one storage to another one, of any two engines.

No server may be running on either. Keys and values are exactly the same after it:
encrypted objects stay encrypted, and the server of the target needs the same
encryption configuration. What expires (Events) has the time that was left.

Revisions of the target are larger than all of the source. A client that saw the
source gets 410 (Expired) for what it saw, and lists again: informers and
controllers go on, and need no restart. The revisions of an etcd cluster that runs
cannot be raised: without --accept-new-revisions, a copy into one is refused.

A copy that was interrupted is continued when the same command is run again. Until
then no server starts on the target. In the end both are read and compared.`,
		Example: `  sailplane storage copy --from sqlite:data/state.db --to postgres://sailplane@db.internal/shop --to-password-file pw
  sailplane storage copy --from-config server.yaml --to etcd:new`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return m.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	m.from.flags(c, "storage to read")
	m.to.flags(c, "storage to write")
	f := c.Flags()
	f.StringVar(&m.prefix, "prefix", "",
		"what the keys start with; others are left alone (default storage.prefix of a configuration, or /registry)")
	f.BoolVar(&m.options.Overwrite, "overwrite", false, "replace what the target has; else it has to be empty")
	f.BoolVar(&m.options.AcceptNewRevisions, "accept-new-revisions", false,
		"copy into a cluster whose revisions may be smaller than those clients have seen: restart all clients then")
	return c
}

func (m *copying) run(ctx context.Context, out, log io.Writer) error {
	from, one, err := m.from.open()
	if err != nil {
		return err
	}
	to, other, err := m.to.open()
	if err != nil {
		return err
	}
	if m.options.Prefix, err = onePrefix(m.prefix, one, other); err != nil {
		return err
	}
	say := newTeller(log)
	m.options.Progress = func(p storage.Progress) {
		doing := "copied"
		if p.Pass > 1 {
			doing = "compared"
		}
		say.progress(doing, p.Keys, p.Total)
	}
	begun := time.Now()
	r, err := storage.Copy(ctx, from, to, m.options)
	if ctx.Err() != nil {
		return errors.New("interrupted: to continue, run the same command again; until then no server starts on the target")
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "copied %d keys, %d bytes, in %v: %d written, %d deleted\n",
		r.Keys, r.Bytes, time.Since(begun).Round(time.Millisecond), r.Written, r.Deleted)
	if r.Expiring+r.Expired > 0 {
		fmt.Fprintf(out, "and %d keys that expire; %d have\n", r.Expiring, r.Expired)
	}
	fmt.Fprintf(out, "compared: both have the same keys and values, SHA-256 %x\n", r.SHA256)
	if r.Continuous {
		fmt.Fprintf(out, "revisions go on at %d, above those of the source (%d): clients list again, and need no restart\n",
			r.Revision, r.SourceRevision)
	} else {
		fmt.Fprintf(out, "RESTART ALL CLIENTS: revisions go on at %d, which clients of the source (%d) have seen before\n",
			r.Revision, r.SourceRevision)
	}
	return nil
}

// tellEvery is how often long work says how far it is.
const tellEvery = 2 * time.Second

// teller says how far long work is, now and then.
type teller struct {
	to    io.Writer
	doing string
	begun time.Time // of what is done
	said  time.Time
	first int64
}

func newTeller(to io.Writer) *teller { return &teller{to: to} }

// progress says how many of how many are done.
func (t *teller) progress(doing string, done, total int64) {
	t.say(doing, done, func(perSecond float64) string { return fmt.Sprintf("%d of %d, %.0f/s", done, total, perSecond) })
}

// count says how many are done.
func (t *teller) count(doing string, done int64) {
	t.say(doing, done, func(perSecond float64) string { return fmt.Sprintf("%d keys, %.0f/s", done, perSecond) })
}

// bytes says how many bytes are done.
func (t *teller) bytes(doing string, done int64) {
	t.say(doing, done, func(perSecond float64) string { return size(done) + ", " + size(int64(perSecond)) + "/s" })
}

func (t *teller) say(doing string, done int64, text func(perSecond float64) string) {
	if doing != t.doing {
		t.doing, t.begun, t.said, t.first = doing, time.Now(), time.Now(), done
	}
	if time.Since(t.said) < tellEvery {
		return
	}
	t.said = time.Now()
	fmt.Fprintf(t.to, "%s %s\n", doing, text(float64(done-t.first)/time.Since(t.begun).Seconds()))
}
