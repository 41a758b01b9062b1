// Package transfer makes a storage have exactly the keys and values of another one, or of a backup.
//
// It goes through both in the order of their keys, writes what is missing or different, deletes what is
// too much, and does so again until it finds nothing to do. So a run that was interrupted is continued
// by the next one, and the last pass is the proof that nothing is missing.
package transfer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Entry is a key with its value.
type Entry struct {
	Key, Value []byte
	// Expires is when the key expires. Zero: never.
	Expires time.Time
}

// Entries are in the order of the bytes of their keys, and end with the first error.
type Entries = iter.Seq2[Entry, error]

// Range returns the keys with a prefix at a revision; 0: the newest, as nobody else writes. It reads a stream,
// whose size in memory is bounded: for a page with a limit, an etcd counts all keys that follow.
func Range(ctx context.Context, c *clientv3.Client, prefix string, at int64) Entries {
	return func(yield func(Entry, error) bool) {
		r := &reader{client: c, from: prefix, end: clientv3.GetPrefixRangeEnd(prefix), ends: map[int64]time.Time{}}
		for {
			err := r.read(ctx, at, yield)
			if at == 0 && errors.Is(err, rpctypes.ErrCompacted) {
				continue // with a newer revision, from where it was
			}
			if err != nil {
				yield(Entry{}, err)
			}
			return
		}
	}
}

// reader reads keys in their order.
type reader struct {
	client    *clientv3.Client
	from, end string
	ends      map[int64]time.Time // of leases
}

// read reads a stream until it ends, or nobody wants more.
func (r *reader) read(ctx context.Context, at int64, yield func(Entry, error) bool) error {
	ctx, cancel := context.WithCancel(ctx) // ends the stream
	defer cancel()
	chunks, err := r.client.KV.GetStream(ctx, r.from, clientv3.WithRange(r.end), clientv3.WithRev(at))
	if err != nil {
		return err
	}
	for chunk := range chunks {
		if err := chunk.Err(); err != nil {
			return err
		}
		for _, kv := range chunk.Kvs {
			e := Entry{Key: kv.Key, Value: kv.Value}
			if kv.Lease != 0 {
				if e.Expires, err = r.expires(ctx, kv.Lease); err != nil {
					return err
				}
			}
			if !yield(e, nil) {
				return nil
			}
		}
		if n := len(chunk.Kvs); n > 0 {
			r.from = string(chunk.Kvs[n-1].Key) + "\x00"
		}
	}
	return nil
}

// expires returns when the keys of a lease expire. One that has ended leaves its keys for some moments.
func (r *reader) expires(ctx context.Context, lease int64) (time.Time, error) {
	if at, ok := r.ends[lease]; ok {
		return at, nil
	}
	left, err := r.client.TimeToLive(ctx, clientv3.LeaseID(lease))
	if err != nil {
		return time.Time{}, fmt.Errorf("ask when a key expires: %w", err)
	}
	at := time.Now().Add(time.Duration(max(left.TTL, 0)) * time.Second)
	r.ends[lease] = at
	return at, nil
}
