// Package storage moves what one storage has to another one, whatever the engines are.
package storage

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/transfer"
)

// Options say how something is copied.
type Options struct {
	// Prefix is what every key of the server starts with. Empty: "/registry". Other keys are
	// left alone, in both storages.
	Prefix string
	// Overwrite has what the target has below the prefix replaced. False: it has to be empty, or
	// be what an interrupted copy left.
	Overwrite bool
	// AcceptNewRevisions copies into a storage whose revisions cannot be raised above those of the
	// source: an etcd cluster that runs already. Clients that go on with a resource version of before
	// then take new versions of objects for old ones, without a word. Restart all of them.
	AcceptNewRevisions bool
	// Progress is called often. Nil: nobody asks.
	Progress func(Progress)
}

// Progress is how far a copy is.
type Progress struct {
	// Pass is how often the source is read: 1, and 2 when what was written is compared with it.
	Pass int
	// Keys is how many were read in this pass, of Total.
	Keys, Total int64
}

// Result is what a copy did.
type Result struct {
	// Keys and Bytes are those of the source, without keys that expire (Events, say), and SHA256 is
	// their sum: of each key and value, in the order of the keys, with its length in 8 bytes (big
	// endian) before it. The target was read, and has the same.
	Keys, Bytes int64
	SHA256      [32]byte
	// Expiring is how many more keys were copied, which expire, and Expired how many were not, as
	// they have.
	Expiring, Expired int64
	// Written and Deleted are the changes of this run: fewer than Keys where it continued another one.
	Written, Deleted int64
	// Revision is the newest of the target, and its history begins there. SourceRevision is that of
	// the source.
	Revision, SourceRevision int64
	// Continuous tells whether it is larger than all that clients have seen in the source: they get
	// 410 (Expired) for what they saw, and list again. False only with AcceptNewRevisions.
	Continuous bool
}

// Copy makes one storage have exactly the keys and values of another one. No server may be running on
// either.
//
// Keys that expire have the time that was left. Revisions are new, and larger than those of the source,
// so that a client that saw those lists again and misses nothing (Result.Continuous).
//
// An interrupted copy leaves a storage that no server starts on, and the next one with the same source
// continues it. Copy ends when it has read both and found no difference.
func Copy(ctx context.Context, from, to controlplane.Storage, o Options) (r Result, err error) {
	if o.Prefix, err = transfer.Prefix(o.Prefix); err != nil {
		return r, err
	}
	backend := from.Open()
	defer func() { err = errors.Join(err, failed("stop the source", backend.Stop(context.WithoutCancel(ctx)))) }()
	if err := backend.Start(ctx); err != nil {
		return r, fmt.Errorf("source: %w", err)
	}
	client, err := backend.Client()
	if err != nil {
		return r, fmt.Errorf("source: %w", err)
	}
	defer func() { _ = client.Close() }() // its error only says that it was closed
	s := &source{client: client, prefix: o.Prefix}
	described, err := s.describe(ctx, from)
	if err != nil {
		return r, fmt.Errorf("source: %w", err)
	}
	report, err := transfer.Into(ctx, to, described, transfer.Options{
		Prefix: o.Prefix, Overwrite: o.Overwrite, AcceptNewRevisions: o.AcceptNewRevisions, Progress: s.tell(o.Progress),
	})
	if err != nil {
		return r, fmt.Errorf("target: %w", err)
	}
	return Result{
		Keys: report.Last.Keys, Bytes: report.Last.Bytes, SHA256: report.Last.Sum,
		Expiring: report.Last.Expiring, Expired: report.Last.Expired,
		Written: report.Written, Deleted: report.Deleted,
		Revision: report.Revision, SourceRevision: described.Revision, Continuous: report.Raised,
	}, nil
}

func failed(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// source is a storage that is copied, while it runs.
type source struct {
	client *clientv3.Client
	prefix string
	total  int64
}

// describe says what is copied, and finds why it must not be.
func (s *source) describe(ctx context.Context, from controlplane.Storage) (transfer.From, error) {
	stamp, header, err := transfer.Stamp(ctx, s.client, s.prefix)
	if err == nil {
		err = stamp.Check()
	}
	if err != nil {
		return transfer.From{}, err
	}
	if err := transfer.Idle(ctx, s.client, s.prefix); err != nil {
		return transfer.From{}, err
	}
	if n, err := s.client.Get(ctx, s.prefix+"/", clientv3.WithPrefix(), clientv3.WithCountOnly()); err != nil {
		return transfer.From{}, err
	} else if n.Count == 0 {
		return transfer.From{}, fmt.Errorf("%s has no keys below %s: are these the right storage and prefix?", name(from), s.prefix)
	}
	return transfer.From{
		Name: fmt.Sprintf("a copy of %s", name(from)), Revision: header.Revision, Format: stamp.Format,
		Entries: s.entries, IsInUse: s.isInUse,
	}, nil
}

// name is what a storage is called.
func name(s controlplane.Storage) string {
	if named, ok := s.(fmt.Stringer); ok {
		return named.String()
	}
	return fmt.Sprintf("a storage of %s", s.Traits().Engine)
}

// entries reads all at one revision.
func (s *source) entries(ctx context.Context) (transfer.Entries, error) {
	r, err := s.client.Get(ctx, s.prefix+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return nil, fmt.Errorf("count what is copied: %w", err)
	}
	s.total = r.Count
	return transfer.Range(ctx, s.client, s.prefix+"/", r.Header.Revision), nil
}

// isInUse finds that servers were started meanwhile, and that the source is the target.
func (s *source) isInUse(ctx context.Context) error {
	stamp, _, err := transfer.Stamp(ctx, s.client, s.prefix)
	switch {
	case err != nil:
		return fmt.Errorf("source: %w", err)
	case stamp.Filling != nil:
		return errors.New("it is the source, by another name: name another storage")
	}
	return failed("source", transfer.Idle(ctx, s.client, s.prefix))
}

// tell hands progress on.
func (s *source) tell(progress func(Progress)) func(pass int, keys int64) {
	if progress == nil {
		return nil
	}
	return func(pass int, keys int64) { progress(Progress{Pass: pass, Keys: keys, Total: s.total}) }
}
