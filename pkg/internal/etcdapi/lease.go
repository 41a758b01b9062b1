package etcdapi

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// lease is etcd's Lease service as far as API servers use it: they grant leases
// that end by themselves and never renew one. The number of a lease is the time at
// which it ends, in milliseconds since 1970, and a checksum of it. So no state is
// kept, and the keys of a lease expire at that time, in whichever process then
// runs.
type lease struct {
	pb.UnimplementedLeaseServer
	hub *hub
}

// LeaseGrant implements the etcd Lease service.
func (l *lease) LeaseGrant(_ context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	switch {
	case r.ID != 0:
		return nil, unsupported("a lease with a chosen ID")
	case r.TTL <= 0 || r.TTL > maxTTL:
		return nil, rpctypes.ErrGRPCLeaseTTLTooLarge
	}
	// Rounded up: nothing expires early.
	expires := time.Now().Add(time.Duration(r.TTL)*time.Second).UnixMilli() + 1
	return &pb.LeaseGrantResponse{Header: &pb.ResponseHeader{Revision: l.hub.reached()}, ID: leaseOf(expires), TTL: r.TTL}, nil
}

// leaseOf returns the number of the lease that ends at a time.
func leaseOf(expires int64) int64 {
	if expires == 0 {
		return 0
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(expires))
	return expires<<16 | int64(crc32.ChecksumIEEE(b[:])&0xffff)
}

// maxTTL is etcd's longest time to live, in seconds.
const maxTTL = 9_000_000_000

// LeaseTimeToLive implements the etcd Lease service, without the keys.
func (l *lease) LeaseTimeToLive(_ context.Context, r *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	if r.Keys {
		return nil, unsupported("reading the keys of a lease")
	}
	left := time.Until(time.UnixMilli(r.ID >> 16))
	ttl := int64(-1) // etcd's answer for a lease that ended
	if left > 0 {
		ttl = int64(left.Seconds())
	}
	return &pb.LeaseTimeToLiveResponse{Header: &pb.ResponseHeader{Revision: l.hub.reached()}, ID: r.ID, TTL: ttl}, nil
}

// deadline returns when the keys of a lease expire, in milliseconds since 1970.
func deadline(id int64) (int64, error) {
	expires := id >> 16
	if id != 0 && (leaseOf(expires) != id || expires <= time.Now().UnixMilli()) {
		return 0, rpctypes.ErrGRPCLeaseNotFound
	}
	return expires, nil
}
