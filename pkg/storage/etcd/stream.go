package etcd

import (
	"bytes"
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/server/v3/etcdserver/txn"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
)

const (
	// firstKeys is how many keys the first chunk of a stream has at most, and mostKeys any.
	firstKeys, mostKeys = 64, 4096
	// chunkBytes is how many bytes a chunk should have. etcd's are as large as the largest request: five of
	// those are on their way at a time.
	chunkBytes = 512 << 10
)

// RangeStream implements the etcd KV service.
func (g *guardedKV) RangeStream(r *pb.RangeRequest, stream pb.KV_RangeStreamServer) error {
	if err := g.calls.begin(); err != nil {
		return err
	}
	defer g.calls.end()
	if r.Limit > 0 || r.CountOnly || r.KeysOnly || len(r.RangeEnd) == 0 || r.SortOrder != pb.RangeRequest_NONE {
		return g.KVServer.RangeStream(r, stream)
	}
	return g.stream(stream.Context(), r, stream.Send)
}

// stream sends all keys of a range at one revision, in small chunks, the last one with the header.
func (g *guardedKV) stream(ctx context.Context, r *pb.RangeRequest, send func(*pb.RangeStreamResponse) error) error {
	// What an answer that is sure to be the newest says of the storage. It checks the request, too.
	newest, err := g.Range(ctx, &pb.RangeRequest{Key: r.Key, Revision: r.Revision, Serializable: r.Serializable})
	if err != nil {
		return err
	}
	server, header := g.keeper.server, newest.Header
	part := &pb.RangeRequest{Key: r.Key, RangeEnd: r.RangeEnd, Revision: r.Revision, Limit: firstKeys}
	if part.Revision <= 0 {
		part.Revision = header.Revision
	}
	for count := int64(0); ; {
		page, _, err := txn.Range(ctx, server.Logger(), server.KV(), part, false)
		if err != nil {
			return grpcError(err)
		}
		count += int64(len(page.Kvs))
		chunk := &pb.RangeResponse{Kvs: page.Kvs}
		if !page.More {
			chunk.Header, chunk.Count = header, count
		}
		size := 0
		for _, kv := range page.Kvs {
			size += len(kv.Key) + len(kv.Value)
		}
		if page.More {
			part.Key = append(bytes.Clone(page.Kvs[len(page.Kvs)-1].Key), 0)
			part.Limit = max(1, min(mostKeys, 4*part.Limit, part.Limit*chunkBytes/int64(max(size, 1))))
		}
		if err := send(&pb.RangeStreamResponse{RangeResponse: chunk}); err != nil || !page.More {
			return err
		}
	}
}

// grpcError is an error of the storage as etcd's service has it.
func grpcError(err error) error {
	switch {
	case errors.Is(err, mvcc.ErrCompacted):
		return rpctypes.ErrGRPCCompacted
	case errors.Is(err, mvcc.ErrFutureRev):
		return rpctypes.ErrGRPCFutureRev
	}
	return err
}
