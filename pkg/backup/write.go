package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/format"
	"github.com/sailplane-dev/sailplane/pkg/internal/transfer"
)

// Write writes a backup of a running server: all that it has stored, of all planes, as it is at one
// revision. Writes go on meanwhile. An error leaves an incomplete backup, which no reader takes.
//
// What parts of the server keep in other storages ([controlplane.ServerPlan.KeepElsewhere]) is in it, too, each as it is
// at one revision of that storage, not before the revision of the server's own.
//
// What was replaced or deleted while it is written has to be kept for so long: as long as the history
// (Builder.History) and its limit allow.
func Write(ctx context.Context, s *controlplane.Server, to io.Writer) (Info, error) {
	c, prefix := s.Stored()
	if c == nil {
		return Info{}, errors.New("backup: the server does not run")
	}
	begin := Info{Engine: s.Storage(ctx).Engine, Prefix: prefix}
	info, err := write(ctx, c, begin, &paced{ctx: ctx, to: to, begun: time.Now()}, s.Elsewhere)
	if err != nil {
		return info, fmt.Errorf("backup: %w", err)
	}
	return info, nil
}

const (
	// resting is how much longer a backup of a running server rests than it works, and restMost how long at
	// most after each write: clients of the server come first.
	resting  = 4
	restMost = 25 * time.Millisecond
)

// paced rests after each write. What compresses writes some 100 KiB at a time.
type paced struct {
	ctx   context.Context //nolint:containedctx // it lives as long as one call
	to    io.Writer
	begun time.Time // the work since the last rest
}

// Write implements io.Writer.
func (p *paced) Write(b []byte) (int, error) {
	n, err := p.to.Write(b)
	if err != nil {
		return n, err
	}
	rest := time.NewTimer(min(restMost, resting*time.Since(p.begun)))
	defer rest.Stop()
	select {
	case <-rest.C:
	case <-p.ctx.Done():
		return n, context.Cause(p.ctx)
	}
	p.begun = time.Now()
	return n, nil
}

// WriteStored writes a backup of a storage that no server uses, and of nothing that a server kept in others. An empty
// prefix is "/registry".
func WriteStored(ctx context.Context, s controlplane.Storage, prefix string, to io.Writer) (info Info, err error) {
	if prefix, err = transfer.Prefix(prefix); err != nil {
		return info, err
	}
	err = transfer.With(ctx, s.Open(), func(c *clientv3.Client) error {
		info, err = write(ctx, c, Info{Engine: s.Traits().Engine, Prefix: prefix}, to, nothing)
		if err == nil && info.Keys+info.Expiring == 0 {
			err = fmt.Errorf("there are no keys below %s: are these the right storage and prefix?", prefix)
		}
		return err
	})
	if err != nil {
		return info, fmt.Errorf("backup: %w", err)
	}
	return info, nil
}

// nothing is elsewhere.
func nothing(context.Context, int64) ([]controlplane.Elsewhere, error) { return nil, nil }

// write writes what is below a prefix, and what is elsewhere.
func write(ctx context.Context, c *clientv3.Client, info Info, to io.Writer, elsewhere controlplane.ElsewhereFunc) (Info, error) {
	stamp, header, err := transfer.Stamp(ctx, c, info.Prefix)
	if err == nil {
		err = stamp.Check()
	}
	if err != nil {
		return info, err
	}
	info.Format, info.Stored, info.Program = Format, stamp.Format, controlplane.Version().GitVersion
	info.Cluster, info.Revision, info.Taken = header.ClusterId, header.Revision, time.Now().UTC().Truncate(time.Second)
	parts, err := elsewhere(ctx, info.Revision)
	if err != nil {
		return info, err
	}
	w, err := newWriter(to, info)
	if err != nil {
		return info, err
	}
	own := transfer.Range(ctx, c, transfer.Root(info.Prefix), info.Revision)
	return w.all(together(ctx, own, parts), func(e *transfer.Entry) bool {
		return !format.IsOwn(info.Prefix, string(e.Key)) // Info has it
	})
}

// all writes the entries that a function wants, as that changes them, and completes the backup.
func (w *writer) all(entries transfer.Entries, wants func(*transfer.Entry) bool) (Info, error) {
	for e, err := range entries {
		if errors.Is(err, rpctypes.ErrCompacted) {
			return w.info, fmt.Errorf("history was dropped while it was read for %v: keep it for longer (storage.history, and "+
				"storage.historyLimit), or read faster: %w", time.Since(w.info.Taken).Round(time.Second), err)
		}
		if err != nil {
			return w.info, err
		}
		if !wants(&e) {
			continue
		}
		if err := w.add(e); err != nil {
			return w.info, err
		}
	}
	return w.end()
}

// Read reads a backup to its end, and says what is in it. An error says what is wrong with it.
func Read(ctx context.Context, from io.Reader) (Info, error) {
	return check(ctx, from, func(*Info) error { return nil }, func(*Info, transfer.Entry) error { return nil })
}

// isWhole refuses backups that are not of a whole storage.
func isWhole(i *Info) error {
	if i.EtcdStorage == "" {
		return nil
	}
	return fmt.Errorf("it has the data of EtcdStorage %q alone, for a server that runs: sailplane tenants restore %[1]s FILE",
		i.EtcdStorage)
}

// check reads a backup that is of the right kind, and hands on what is in it.
func check(ctx context.Context, from io.Reader, is func(*Info) error, each func(*Info, transfer.Entry) error) (Info, error) {
	r, err := newReader(from)
	if err != nil {
		return Info{}, fmt.Errorf("backup: %w", err)
	}
	defer r.close()
	if err := is(&r.counts); err != nil {
		return r.counts, fmt.Errorf("backup: %w", err)
	}
	for e, err := range r.entries(ctx) {
		if err == nil {
			err = each(&r.counts, e)
		}
		if err != nil {
			return r.counts, fmt.Errorf("backup: %w", err)
		}
	}
	return r.counts, nil
}
