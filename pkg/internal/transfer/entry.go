// Package transfer makes a storage have exactly the keys and values of another one, or of a backup.
//
// It goes through both in the order of their keys, writes what is missing or different, deletes what is
// too much, and does so again until it finds nothing to do. So a run that was interrupted is continued
// by the next one, and the last pass is the proof that nothing is missing.
package transfer

import (
	"context"
	"errors"
	"iter"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// pageKeys is how many keys are read at once at most. They may have 1.5 MiB each.
	pageKeys = 128
	// pageBytes is how many bytes a page should have.
	pageBytes = 2 << 20
)

// Entry is a key with its value.
type Entry struct {
	Key, Value []byte
	// Expires is when the key expires. Zero: never.
	Expires time.Time
}

// Entries are in the order of the bytes of their keys, and end with the first error.
type Entries = iter.Seq2[Entry, error]

// page is what one read returned.
type page struct {
	kvs  []*mvccpb.KeyValue
	more bool
	err  error
}

// Range returns the keys with a prefix at a revision; 0: each page as it is when it is read. While one
// page is used, the next one is read.
func Range(ctx context.Context, c *clientv3.Client, prefix string, at int64) Entries {
	return func(yield func(Entry, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		pages := make(chan page)
		done := make(chan struct{})
		go func() {
			defer close(done)
			readPages(ctx, c, span{prefix, clientv3.GetPrefixRangeEnd(prefix), at}, pages)
		}()
		defer func() { cancel(); <-done }()
		ends := lives{client: c, known: map[int64]time.Time{}}
		for p := range pages {
			for _, kv := range p.kvs {
				e := Entry{Key: kv.Key, Value: kv.Value}
				if kv.Lease != 0 && p.err == nil {
					e.Expires, p.err = ends.of(ctx, kv.Lease)
				}
				if p.err != nil {
					break
				}
				if !yield(e, nil) {
					return
				}
			}
			if p.err != nil {
				yield(Entry{}, p.err)
				return
			}
		}
	}
}

type span struct {
	from, end string
	at        int64
}

// readPages sends the pages of a span, the last one with what went wrong, if something did.
func readPages(ctx context.Context, c *clientv3.Client, s span, to chan<- page) {
	defer close(to)
	limit := pageKeys
	for more := true; more; {
		r, err := c.KV.Get(ctx, s.from, clientv3.WithRange(s.end), clientv3.WithRev(s.at), clientv3.WithLimit(int64(limit)))
		p := page{err: err}
		if err == nil {
			p.kvs, p.more = r.Kvs, r.More
		}
		select {
		case to <- p:
		case <-ctx.Done():
			return
		}
		if more = p.more && len(p.kvs) > 0; more {
			s.from = string(p.kvs[len(p.kvs)-1].Key) + "\x00"
			limit = nextLimit(limit, p.kvs)
		}
	}
}

// nextLimit fits the number of keys to the size of those that came last.
func nextLimit(limit int, kvs []*mvccpb.KeyValue) int {
	size := 0
	for _, kv := range kvs {
		size += len(kv.Key) + len(kv.Value)
	}
	return max(1, min(pageKeys, 2*limit, limit*pageBytes/max(size, 1)))
}

// lives knows when leases end.
type lives struct {
	client *clientv3.Client
	known  map[int64]time.Time
}

// of returns when the keys of a lease expire. One that has ended leaves its keys for some moments.
func (l lives) of(ctx context.Context, lease int64) (time.Time, error) {
	if at, ok := l.known[lease]; ok {
		return at, nil
	}
	r, err := l.client.TimeToLive(ctx, clientv3.LeaseID(lease))
	if err != nil {
		return time.Time{}, errors.Join(errors.New("ask when a key expires"), err)
	}
	at := time.Now().Add(time.Duration(max(r.TTL, 0)) * time.Second)
	l.known[lease] = at
	return at, nil
}
