package transfer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/format"
)

// maxPasses is how often the source is gone through. The second pass finds nothing to do unless
// somebody writes to it.
const maxPasses = 4

// From is what a storage is filled with.
type From struct {
	// Name says what it is: "a copy of sqlite file \"state.db\"".
	Name string
	// Revision is the newest one that clients may have seen there.
	Revision int64
	// Past: it is what a storage was, and clients may have seen more of that since. Cluster is the ID
	// of the etcd that it was; 0: it was none.
	Past    bool
	Cluster uint64
	// Format is that of what is stored.
	Format int
	// Entries returns all keys below the prefix, as often as it is called. Keys that are being written
	// may differ from one call to the next.
	Entries func(context.Context) (Entries, error)
	// IsInUse returns an error if somebody may be writing to it, now that the storage is marked.
	// Nil: nobody is.
	IsInUse func(context.Context) error
}

func (f From) check(ctx context.Context) error {
	if f.IsInUse == nil {
		return nil
	}
	return f.IsInUse(ctx)
}

// Options say how.
type Options struct {
	// Prefix starts every key.
	Prefix string
	// Overwrite: what the storage has is replaced. Else it has to be empty, or be what an interrupted
	// run left.
	Overwrite bool
	// AcceptNewRevisions: the storage may go on with revisions that clients have seen elsewhere.
	AcceptNewRevisions bool
	// Progress is called often, with the number of the pass and how many keys it has gone through. Nil:
	// nobody asks.
	Progress func(pass int, keys int64)
}

// Report says what was done.
type Report struct {
	// Last is the pass that found nothing to do, and Written and Deleted what the others did.
	Last             Tally
	Written, Deleted int64
	// Revision is the first revision that clients see.
	Revision int64
	// Raised tells whether it is larger than all they may have seen.
	Raised bool
}

// Into fills a storage. It is marked meanwhile, so that no server uses it; a run that is interrupted
// leaves it so, and the next one with the same source continues. In the end all history is dropped.
func Into(ctx context.Context, to controlplane.Storage, from From, o Options) (r Report, err error) {
	found, err := look(ctx, to, from, o)
	if err != nil || found.complete {
		return found.report, err
	}
	open := to.Open
	if raising, ok := to.(controlplane.Raising); ok {
		open = func() controlplane.Backend { return raising.OpenAbove(from.Revision) }
		r.Raised = true
	} else if r.Raised = from.isBehind(found); !r.Raised && !o.AcceptNewRevisions {
		return r, fmt.Errorf("its newest revision is %d, and clients of %s may have seen that: they would take new versions of objects "+
			"for old ones, and miss changes without a word. Revisions of a cluster that runs cannot be raised: fill an embedded etcd, "+
			"and make the cluster from it; or accept new revisions, and restart every client", found.revision, from.Name)
	}
	w := &work{from: from, options: o, before: found.stamp, maxOps: max(1, to.Traits().MaxOps), report: r}
	err = With(ctx, open(), func(c *clientv3.Client) error { return w.run(ctx, c) })
	return w.report, err
}

// state is what a storage is before it is filled.
type state struct {
	stamp    format.Stamp
	revision int64
	cluster  uint64
	// complete: it has been filled, by a run that was ended before it could say so.
	complete bool
	report   Report
}

// isBehind tells whether clients have seen smaller revisions only than a storage has.
func (f From) isBehind(s state) bool {
	if f.Past { // there may have been any number of changes since
		return f.Cluster != 0 && f.Cluster == s.cluster
	}
	return s.revision > f.Revision
}

// look finds why a storage must not be filled.
func look(ctx context.Context, to controlplane.Storage, from From, o Options) (found state, err error) {
	if from.Format > format.Current {
		return found, format.Stamp{Format: from.Format}.Known()
	}
	err = With(ctx, to.Open(), func(c *clientv3.Client) error {
		if found, err = stateOf(ctx, c, o.Prefix); err != nil {
			return err
		}
		if err := found.stamp.Known(); err != nil {
			return err
		}
		if f := found.stamp.Filling; f != nil && f.From != from.Name && !o.Overwrite {
			return fmt.Errorf("it is not complete: it was being filled with %s, begun at %s, and not with %s: "+
				"finish that one first, or have it overwritten", f.From, f.Begun.Format(time.RFC3339), from.Name)
		} else if f != nil {
			return nil
		}
		if err := Idle(ctx, c, o.Prefix); err != nil {
			return err
		}
		n, err := c.Get(ctx, Root(o.Prefix), clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err == nil && n.Count > 0 && !o.Overwrite {
			if found.complete, err = found.isFilled(ctx, c, from, o); found.complete || err != nil {
				return err
			}
			err = fmt.Errorf("it has %d keys below %s: choose an empty one, or have it overwritten, which deletes what it has",
				n.Count, o.Prefix)
		}
		return err
	})
	return found, err
}

// isFilled tells whether a storage has exactly the entries, and revisions above those that clients have seen.
func (s *state) isFilled(ctx context.Context, c *clientv3.Client, from From, o Options) (bool, error) {
	if s.report.Raised = s.revision > from.Revision; !s.report.Raised && !o.AcceptNewRevisions {
		return false, nil
	}
	entries, err := from.Entries(ctx)
	if err != nil {
		return false, err
	}
	f := newFiller(c, o, 1)
	f.dry = true
	s.report.Revision = s.revision
	s.report.Last, err = f.pass(ctx, entries)
	if errors.Is(err, errDiffers) {
		return false, nil
	}
	return err == nil, err
}

// Root is what keys below a prefix begin with.
func Root(prefix string) string { return strings.TrimSuffix(prefix, "/") + "/" }

// Prefix returns a prefix that is one; "/registry" for none.
func Prefix(prefix string) (string, error) {
	if prefix == "" {
		return "/registry", nil
	}
	if !strings.HasPrefix(prefix, "/") || path.Clean(prefix) != prefix || prefix == "/" {
		return "", fmt.Errorf(`prefix %q: want a path such as "/registry"`, prefix)
	}
	return prefix, nil
}

// Idle returns an error if servers seem to be running on a storage.
func Idle(ctx context.Context, c *clientv3.Client, prefix string) error {
	peers, err := controlplane.Serving(ctx, c, prefix)
	if err != nil || len(peers) == 0 {
		return err
	}
	var names []string
	for _, p := range peers {
		names = append(names, fmt.Sprintf("%s at %s (seen %v ago)", p.ID, p.Address, time.Since(p.Renewed).Round(time.Second)))
	}
	slices.Sort(names)
	return fmt.Errorf("servers are running on it: %s: stop them; one that was killed counts as running for 40 s", strings.Join(names, ", "))
}

// stateOf returns what a storage says of itself.
func stateOf(ctx context.Context, c *clientv3.Client, prefix string) (state, error) {
	stamp, r, err := Stamp(ctx, c, prefix)
	if err != nil {
		return state{}, err
	}
	return state{stamp: stamp, revision: r.Revision, cluster: r.ClusterId}, nil
}

// Stamp returns what a storage says of itself, and the header of the answer: with its newest revision, and
// the ID of its etcd.
func Stamp(ctx context.Context, c *clientv3.Client, prefix string) (s format.Stamp, h *pb.ResponseHeader, err error) {
	r, err := c.Get(ctx, format.Key(prefix))
	if err != nil {
		return s, nil, err
	}
	var value []byte
	if len(r.Kvs) > 0 {
		value = r.Kvs[0].Value
	}
	s, err = format.Parse(value)
	return s, r.Header, err
}

// With starts a storage, and stops it when something is done.
func With(ctx context.Context, b controlplane.Backend, something func(*clientv3.Client) error) (err error) {
	defer func() { err = errors.Join(err, b.Stop(context.WithoutCancel(ctx))) }()
	if err := b.Start(ctx); err != nil {
		return err
	}
	c, err := b.Client()
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // its error only says that it was closed
	return something(c)
}

// work fills a storage whose revisions are as they should be.
type work struct {
	from    From
	options Options
	before  format.Stamp
	maxOps  int
	report  Report
}

func (w *work) run(ctx context.Context, c *clientv3.Client) error {
	mark := format.Stamp{Format: w.from.Format, Filling: w.before.Filling}
	if mark.Filling == nil || mark.Filling.From != w.from.Name {
		mark.Filling = &format.Filling{From: w.from.Name, Begun: time.Now().UTC().Truncate(time.Second)}
	}
	mark.Filling.Run = rand.Text()
	key := format.Key(w.options.Prefix)
	if _, err := c.Put(ctx, key, string(mark.Bytes())); err != nil {
		return fmt.Errorf("mark it as incomplete: %w", err)
	}
	if err := w.from.check(ctx); err != nil {
		if w.before.Filling == nil { // nothing was changed
			_, undo := c.Put(context.WithoutCancel(ctx), key, string(w.before.Bytes()))
			err = errors.Join(err, undo)
		}
		return err
	}
	f := newFiller(c, w.options, w.maxOps)
	for pass := 1; ; pass++ {
		f.progress = func(n int64) {
			if w.options.Progress != nil {
				w.options.Progress(pass, n)
			}
		}
		done, err := f.once(ctx, w.from, &w.report)
		switch last := w.report.Last; {
		case err != nil:
			return err
		case !done && pass == maxPasses:
			return fmt.Errorf("%s is still being written: %d keys had changed when it was read for the %dth time. "+
				"Stop its servers, and run the same command again: what is copied stays", w.from.Name, last.Written+last.Deleted, pass)
		case done:
			return f.finish(ctx, key, mark, &w.report)
		}
	}
}

func newFiller(c *clientv3.Client, o Options, maxOps int) *filler {
	return &filler{
		client: c, prefix: Root(o.Prefix), maxOps: maxOps, writers: manyWriters, progress: func(int64) {},
		beside: func(k []byte) bool { return format.IsOwn(o.Prefix, string(k)) },
	}
}

// once makes one pass, and tells whether there was nothing to do.
func (f *filler) once(ctx context.Context, from From, r *Report) (done bool, err error) {
	if err := from.check(ctx); err != nil {
		return false, err
	}
	entries, err := from.Entries(ctx)
	if err != nil {
		return false, err
	}
	r.Last, err = f.pass(ctx, entries)
	if errors.Is(err, rpctypes.ErrCompacted) {
		return false, nil // the next one reads a newer revision
	}
	r.Written += r.Last.Written
	r.Deleted += r.Last.Deleted
	return err == nil && r.Last.Written+r.Last.Deleted == 0, err
}

// finish drops all history, and then the mark.
func (f *filler) finish(ctx context.Context, key string, mark format.Stamp, r *Report) error {
	at, err := f.client.Get(ctx, key)
	if err != nil {
		return err
	}
	if len(at.Kvs) != 1 || string(at.Kvs[0].Value) != string(mark.Bytes()) {
		return errors.New("somebody else fills it at the same time: run one command at a time, and this one again")
	}
	r.Revision = at.Header.Revision
	if _, err := f.client.Compact(ctx, r.Revision); err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("drop its history: %w", err)
	}
	stamp := format.Stamp{Format: mark.Format}
	done, err := f.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", at.Kvs[0].ModRevision)).
		Then(clientv3.OpPut(key, string(stamp.Bytes()))).Commit()
	if err == nil && !done.Succeeded {
		err = errors.New("somebody else fills it at the same time: run one command at a time, and this one again")
	}
	if err != nil {
		return fmt.Errorf("mark it as complete: %w", err)
	}
	return nil
}
