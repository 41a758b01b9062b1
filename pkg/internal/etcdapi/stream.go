package etcdapi

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
)

// The chunks of a stream: how many keys the first has, and the bounds for the bytes
// of values in later ones.
const (
	firstChunk    = 64
	maxChunk      = 4096
	minChunkBytes = 1 << 20
	maxChunkBytes = 4 << 20
)

// RangeStream implements the etcd KV service (KEP-5966): a range at one revision,
// in chunks, with the header in the last.
func (s *kv) RangeStream(r *pb.RangeRequest, stream pb.KV_RangeStreamServer) error {
	if err := supported(r); err != nil {
		return err
	}
	ctx := stream.Context()
	if r.CountOnly || len(r.RangeEnd) == 0 {
		response, err := s.Range(ctx, r)
		if err != nil {
			return err
		}
		return stream.Send(&pb.RangeStreamResponse{RangeResponse: response})
	}
	q := revision.Query{
		Span: storedSpan(r.Key, r.RangeEnd), Revision: max(r.Revision, 0), Limit: firstChunk,
		KeysOnly: r.KeysOnly, Uncounted: true,
	}
	var newest, sent int64
	for {
		want := q.Limit
		if r.Limit > 0 {
			q.Limit = min(q.Limit, r.Limit-sent)
		}
		page, err := s.log.Range(ctx, q)
		if err != nil {
			return rpcError(err)
		}
		if newest == 0 {
			newest = page.Revision
			if q.Revision == 0 {
				q.Revision = newest
			}
		}
		chunk, bytes := chunkOf(page)
		n := int64(len(page.KVs))
		sent += n
		isLast := n < q.Limit || sent == r.Limit
		if n > 0 {
			q.Key = page.KVs[n-1].Key + "\x00"
		}
		if isLast {
			chunk.Header, chunk.Count = &pb.ResponseHeader{Revision: newest}, sent
			if n == q.Limit { // there may be more
				rest, err := s.rest(ctx, q)
				if err != nil {
					return err
				}
				chunk.More, chunk.Count = rest > 0, sent+rest
			}
		}
		if err := stream.Send(&pb.RangeStreamResponse{RangeResponse: chunk}); err != nil || isLast {
			return err
		}
		q.Limit = nextLimit(want, bytes)
	}
}

// rest counts the keys that were not read.
func (s *kv) rest(ctx context.Context, q revision.Query) (int64, error) {
	q.Limit, q.CountOnly, q.Uncounted = 0, true, false
	page, err := s.log.Range(ctx, q)
	return page.Count, rpcError(err)
}

// nextLimit returns the number of keys in the chunk after one of that many bytes.
func nextLimit(limit int64, bytes int) int64 {
	switch {
	case bytes < minChunkBytes:
		return min(2*limit, maxChunk)
	case bytes > maxChunkBytes:
		return max(limit/2, 1)
	}
	return limit
}

func chunkOf(page revision.Page) (chunk *pb.RangeResponse, bytes int) {
	chunk = &pb.RangeResponse{Kvs: make([]*mvccpb.KeyValue, len(page.KVs))}
	for i, kv := range page.KVs {
		bytes += len(kv.Value)
		chunk.Kvs[i] = keyValue(kv)
	}
	return chunk, bytes
}
