package transfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"iter"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
)

const (
	// batchBytes is how much a transaction writes at most, unless one value is larger: an etcd takes
	// 1.5 MiB unless told otherwise.
	batchBytes = 1 << 20
	// manyWriters is how many transactions are on their way at the same time, where nobody else writes.
	manyWriters = 8
	// soon is the time within which a key that expires is left out.
	soon = time.Second
)

// Tally counts what a pass met and did.
type Tally struct {
	// Keys and Bytes are those of the source that do not expire, and Sum the SHA-256 of them: of each
	// key and value, with its length in 8 bytes (big endian) before it.
	Keys, Bytes int64
	Sum         [sha256.Size]byte
	// Expiring are the keys that expire, ExpiringBytes those of them with their values, and Expired the keys that have.
	Expiring, ExpiringBytes, Expired int64
	// Written and Deleted are the changes that were needed, without those of keys that expire.
	Written, Deleted int64
}

// filler makes a storage have the entries of something else.
type filler struct {
	client *clientv3.Client
	prefix string
	maxOps int
	// writers is how many transactions are on their way at the same time.
	writers int
	// while has to hold for every write.
	while []clientv3.Cmp
	// beside tells whether a key is left alone.
	beside   func(key []byte) bool
	progress func(keys int64)
	// dry: nothing is written, and what would be is errDiffers.
	dry bool

	leases map[int64]clientv3.LeaseID // by the second in which they end
	group  *errgroup.Group
	ops    []clientv3.Op
	size   int
}

// errDiffers is why a dry pass ends.
var errDiffers = errors.New("the storage has something else")

// pass goes through the entries and the storage once.
func (f *filler) pass(ctx context.Context, entries Entries) (t Tally, err error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(f.writers)
	f.group, f.leases = group, map[int64]clientv3.LeaseID{}
	there, stop := iter.Pull2(Range(ctx, f.client, f.prefix, 0))
	defer stop()
	m := &merge{filler: f, next: there, sum: sha256.New()}
	err = m.run(ctx, entries)
	if err == nil {
		f.flush(ctx)
	}
	f.ops, f.size = nil, 0
	// The first error is the cause of the others.
	if failed := group.Wait(); failed != nil {
		err = failed
	}
	m.sum.Sum(m.tally.Sum[:0])
	return m.tally, err
}

// merge is one pass.
type merge struct {
	*filler
	next    func() (Entry, error, bool)
	have    Entry // the next key of the storage, unless it is at its end
	hasMore bool
	sum     hash.Hash
	tally   Tally
}

func (m *merge) run(ctx context.Context, entries Entries) error {
	if err := m.advance(); err != nil {
		return err
	}
	var last []byte
	for e, err := range entries {
		switch {
		case err != nil:
			return fmt.Errorf("read what is copied: %w", err)
		case m.beside(e.Key):
			continue
		case last != nil && bytes.Compare(last, e.Key) >= 0:
			return fmt.Errorf("read what is copied: %q comes after %q: its index is damaged", e.Key, last)
		}
		last = e.Key
		if err := m.one(ctx, e); err != nil {
			return err
		}
	}
	for m.hasMore {
		if err := m.surplus(ctx); err != nil {
			return err
		}
	}
	return nil
}

// advance goes to the next key of the storage.
func (m *merge) advance() error {
	for {
		e, err, ok := m.next()
		if err != nil {
			return fmt.Errorf("read what is there: %w", err)
		}
		if m.have, m.hasMore = e, ok; !ok || !m.beside(e.Key) {
			return nil
		}
	}
}

// one brings the storage up to date with an entry.
func (m *merge) one(ctx context.Context, e Entry) error {
	for m.hasMore && bytes.Compare(m.have.Key, e.Key) < 0 {
		if err := m.surplus(ctx); err != nil {
			return err
		}
	}
	expires := !e.Expires.IsZero()
	same := m.hasMore && bytes.Equal(m.have.Key, e.Key)
	equal := same && bytes.Equal(m.have.Value, e.Value) && expires != m.have.Expires.IsZero()
	if same {
		if err := m.advance(); err != nil {
			return err
		}
	}
	t := &m.tally
	switch {
	case expires && time.Until(e.Expires) < soon:
		t.Expired++
		return nil // the one that is there, if any, expires too
	case expires:
		t.Expiring++
		t.ExpiringBytes += int64(len(e.Key) + len(e.Value))
	default:
		t.Keys++
		t.Bytes += int64(len(e.Key) + len(e.Value))
		Sum(m.sum, e.Key, e.Value)
	}
	m.progress(t.Keys + t.Expiring)
	if equal {
		return nil
	}
	if m.dry && !expires {
		return errDiffers
	}
	if !expires {
		t.Written++
	}
	return m.put(ctx, e)
}

// surplus deletes a key that has to go.
func (m *merge) surplus(ctx context.Context) error {
	if m.dry && m.have.Expires.IsZero() {
		return errDiffers
	}
	if m.have.Expires.IsZero() {
		m.tally.Deleted++
	}
	m.add(ctx, clientv3.OpDelete(string(m.have.Key)), len(m.have.Key))
	return m.advance()
}

// Sum adds a key and a value to a sum, each with its length in 8 bytes (big endian) before it.
func Sum(to hash.Hash, key, value []byte) {
	for _, b := range [][]byte{key, value} {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		_, _ = to.Write(n[:]) // it never fails
		_, _ = to.Write(b)
	}
}

func (f *filler) put(ctx context.Context, e Entry) error {
	if f.dry {
		return nil
	}
	var options []clientv3.OpOption
	if !e.Expires.IsZero() {
		lease, err := f.lease(ctx, e.Expires)
		if err != nil {
			return fmt.Errorf("key %q: have it expire: %w", e.Key, err)
		}
		options = append(options, clientv3.WithLease(lease))
	}
	f.add(ctx, clientv3.OpPut(string(e.Key), string(e.Value), options...), len(e.Key)+len(e.Value))
	return nil
}

// lease returns one that ends at a time, or less than a second later.
func (f *filler) lease(ctx context.Context, at time.Time) (clientv3.LeaseID, error) {
	second := at.Unix() + 1
	if id, ok := f.leases[second]; ok {
		return id, nil
	}
	r, err := f.client.Grant(ctx, max(1, second-time.Now().Unix()))
	if err != nil {
		return 0, err
	}
	f.leases[second] = r.ID
	return r.ID, nil
}

// add adds an operation to the next transaction.
func (f *filler) add(ctx context.Context, op clientv3.Op, size int) {
	if f.dry {
		return
	}
	if len(f.ops) >= f.maxOps || f.size > 0 && f.size+size > batchBytes {
		f.flush(ctx)
	}
	f.ops = append(f.ops, op)
	f.size += size
}

// flush sends the transaction, and waits while too many are on their way.
func (f *filler) flush(ctx context.Context) {
	ops := f.ops
	f.ops, f.size = nil, 0
	if len(ops) == 0 {
		return
	}
	f.group.Go(func() error {
		r, err := f.client.Txn(ctx).If(f.while...).Then(ops...).Commit()
		if err == nil && !r.Succeeded {
			err = ErrOvertaken
		}
		if err != nil {
			return fmt.Errorf("write %q and %d more: %w", ops[0].KeyBytes(), len(ops)-1, err)
		}
		return nil
	})
}
