package transfer

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// partOps is how many keys one transaction writes in a storage that others use meanwhile.
const partOps = 100

// ErrOvertaken is why a part is filled no further: somebody else has begun to.
var ErrOvertaken = errors.New("somebody else has begun to fill it")

// Part is a part of a storage, of which others use the rest meanwhile: one transaction is on its way at a time.
type Part struct {
	Client *clientv3.Client
	// Prefix starts its keys.
	Prefix string
	// While is what has to hold for every write.
	While clientv3.Cmp
	// Progress is called often with how many keys were written.
	Progress func(keys int64)
}

// Fill deletes what the part has, and makes it have the entries, which a function returns as often as it is called.
// Every key has a new revision then. It ends when it has read both and found no difference; the tally is of that.
func (p Part) Fill(ctx context.Context, entries func(context.Context) (Entries, error)) (t Tally, err error) {
	f := &filler{
		client: p.Client, prefix: p.Prefix, maxOps: partOps, writers: 1, while: []clientv3.Cmp{p.While},
		beside: func([]byte) bool { return false }, progress: func(int64) {},
	}
	if t, err = f.pass(ctx, func(func(Entry, error) bool) {}); err != nil {
		return t, fmt.Errorf("delete what is there: %w", err)
	}
	f.progress = p.Progress
	for range maxPasses {
		all, err := entries(ctx)
		if err != nil {
			return t, err
		}
		if t, err = f.pass(ctx, all); err != nil || t.Written+t.Deleted == 0 {
			return t, err
		}
		f.progress = func(int64) {} // the others compare
	}
	return t, errors.New("somebody still writes to it: it differs each time that it is compared")
}
