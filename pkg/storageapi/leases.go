package storageapi

import (
	"context"
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
)

// leases are those of a tenant. Leases that end at about the same time are one: a storage
// keeps each until it ends, and so a tenant has a few hundred at most, whatever it asks for.
// The zero value is ready.
type leases struct {
	mu   sync.Mutex
	ends map[time.Time]int64 // by when they end
	ids  map[int64]time.Time
}

// grant returns a lease that ends when the time is over, or a little later.
func (l *leases) grant(ctx context.Context, c *clientv3.Client, ttl int64, now time.Time) (int64, error) {
	if ttl <= 0 || ttl > maxTTL {
		return 0, rpctypes.ErrGRPCLeaseTTLTooLarge
	}
	width := max(time.Second, time.Duration(ttl)*time.Second/leaseShare).Truncate(time.Second)
	end := now.Add(time.Duration(ttl)*time.Second + width).Truncate(width)
	l.mu.Lock()
	defer l.mu.Unlock()
	if id, ok := l.ends[end]; ok {
		return id, nil
	}
	granted, err := c.Grant(ctx, int64((end.Sub(now)+time.Second-1)/time.Second))
	if err != nil {
		return 0, err
	}
	if l.ends == nil {
		l.ends, l.ids = map[time.Time]int64{}, map[int64]time.Time{}
	}
	if len(l.ends) > maxLeases {
		l.forget(now)
	}
	l.ends[end], l.ids[int64(granted.ID)] = int64(granted.ID), end
	return int64(granted.ID), nil
}

// has tells whether the tenant was granted the lease.
func (l *leases) has(id int64, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	end, ok := l.ids[id]
	return ok && now.Before(end)
}

// forget drops the leases that have ended. The caller holds the lock.
func (l *leases) forget(now time.Time) {
	for end, id := range l.ends {
		if end.Before(now) {
			delete(l.ends, end)
			delete(l.ids, id)
		}
	}
}
