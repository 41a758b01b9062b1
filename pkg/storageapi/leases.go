package storageapi

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// maxTTL is the longest lease, in seconds. API servers have leases for Events, which
	// live an hour (--event-ttl).
	maxTTL = 7 * 24 * 60 * 60
	// leaseShare is the part of its time by which a lease may end later than asked for.
	leaseShare = 16
	// maxLeases is how many leases are remembered before those that have ended are forgotten.
	maxLeases = 1024
	// proofBits is how much of a lease's number proves that the tenant was granted it.
	proofBits = 24
)

// leases are those of a tenant. The number of one is the second at which it ends, and a
// checksum of that and of the tenant: so each server knows those that another one has granted.
// Leases that end at about the same time are one: a storage keeps each until it ends, and
// so a tenant has a few hundred at most, whatever it asks for.
type leases struct {
	of tenantID

	mu     sync.Mutex
	stored map[int64]clientv3.LeaseID // those in the storage, by the second at which they end
}

// grant returns a lease that ends when the time is over, or a little later.
func (l *leases) grant(ttl int64, now time.Time) (int64, error) {
	if ttl <= 0 || ttl > maxTTL {
		return 0, rpctypes.ErrGRPCLeaseTTLTooLarge
	}
	width := max(1, ttl/leaseShare)
	return l.number((now.Unix() + ttl + width) / width * width), nil
}

// number is that of the lease that ends at a second.
func (l *leases) number(end int64) int64 {
	sum := fnv.New64a()
	_, _ = fmt.Fprint(sum, l.of, " ", end) // which never fails
	return end<<proofBits | int64(sum.Sum64()&(1<<proofBits-1))
}

// lease returns the storage's lease for the tenant's.
func (l *leases) lease(ctx context.Context, c *clientv3.Client, id int64, now time.Time) (clientv3.LeaseID, error) {
	end := id >> proofBits
	left := end - now.Unix()
	if id != l.number(end) || left <= 0 || left > 2*maxTTL {
		return 0, rpctypes.ErrGRPCLeaseNotFound
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if stored, ok := l.stored[end]; ok {
		return stored, nil
	}
	granted, err := c.Grant(ctx, left)
	if err != nil {
		return 0, err
	}
	if l.stored == nil {
		l.stored = map[int64]clientv3.LeaseID{}
	}
	if len(l.stored) > maxLeases {
		for end := range l.stored {
			if end < now.Unix() {
				delete(l.stored, end)
			}
		}
	}
	l.stored[end] = granted.ID
	return granted.ID, nil
}
