package etcdclient

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"slices"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// inProcess is the client of a KV service in this process. Unlike etcd's own
// in-process client it streams ranges (KEP-5966).
type inProcess struct {
	pb.KVClient
	server pb.KVServer
}

// RangeStream implements the client of the etcd KV service.
func (c *inProcess) RangeStream(ctx context.Context, r *pb.RangeRequest, _ ...grpc.CallOption) (pb.KV_RangeStreamClient, error) {
	s := &stream{ctx: ctx, chunks: make(chan *pb.RangeStreamResponse)}
	go func() {
		defer close(s.chunks)
		s.err = c.server.RangeStream(r, sender{stream: s})
	}()
	return s, nil
}

// stream is the receiving end of a stream in this process.
type stream struct {
	grpc.ClientStream
	ctx    context.Context //nolint:containedctx // of the stream, as gRPC has it
	chunks chan *pb.RangeStreamResponse
	err    error // set before chunks is closed
}

// Recv implements pb.KV_RangeStreamClient.
func (s *stream) Recv() (*pb.RangeStreamResponse, error) {
	switch chunk, ok := <-s.chunks; {
	case ok:
		return chunk, nil
	case s.err != nil:
		return nil, s.err
	}
	return nil, io.EOF
}

// sender is the sending end of a stream.
type sender struct {
	grpc.ServerStream
	stream *stream
}

// Context implements grpc.ServerStream.
func (s sender) Context() context.Context { return s.stream.ctx }

// Send implements pb.KV_RangeStreamServer. The receiver gets a slice of its own:
// API servers empty it while they read, and etcd reads what it sent once more.
func (s sender) Send(chunk *pb.RangeStreamResponse) error {
	sent := chunk.GetRangeResponse()
	chunk = &pb.RangeStreamResponse{RangeResponse: &pb.RangeResponse{
		Header: sent.GetHeader(), Kvs: slices.Clone(sent.GetKvs()), More: sent.GetMore(), Count: sent.GetCount(),
	}}
	select {
	case s.stream.chunks <- chunk:
		return nil
	case <-s.stream.ctx.Done():
		return status.FromContextError(s.stream.ctx.Err()).Err()
	}
}

const (
	// firstKeys and pageKeys are how many keys the first page has at most, and any, if a server does not
	// stream, and pageBytes how many bytes a page should have: a key may have 1.5 MiB.
	firstKeys, pageKeys = 128, 1000
	pageBytes           = 512 << 10
	// askAgain is when to ask a server that did not stream again: it may have been
	// upgraded.
	askAgain = 10 * time.Minute
)

// streaming is the client of a KV service that may be too old for streams: it then
// reads ranges by pages. API servers would do that too, but then for all storages
// of the process, because of one.
type streaming struct {
	pb.KVClient
	refused atomic.Int64 // when a stream was last refused, in nanoseconds
}

// RangeStream implements the client of the etcd KV service.
func (c *streaming) RangeStream(ctx context.Context, r *pb.RangeRequest, opts ...grpc.CallOption) (pb.KV_RangeStreamClient, error) {
	read := &pages{ctx: ctx, client: c.KVClient, request: r, options: opts, limit: r.Limit}
	if at := c.refused.Load(); at != 0 && time.Since(time.Unix(0, at)) < askAgain {
		return read, nil
	}
	s, err := c.KVClient.RangeStream(ctx, r, opts...)
	if err != nil {
		return nil, err
	}
	return &tried{KV_RangeStreamClient: s, client: c, pages: read}, nil
}

// tried is a stream that may be refused at its first chunk.
type tried struct {
	pb.KV_RangeStreamClient
	client *streaming
	pages  *pages
	begun  bool
}

// Recv implements pb.KV_RangeStreamClient.
func (t *tried) Recv() (*pb.RangeStreamResponse, error) {
	chunk, err := t.KV_RangeStreamClient.Recv()
	if !t.begun && status.Code(err) == codes.Unimplemented {
		t.client.refused.Store(time.Now().UnixNano())
		t.KV_RangeStreamClient = t.pages
		chunk, err = t.pages.Recv()
	}
	t.begun = true
	return chunk, err
}

// pages reads a range by pages, as a stream.
type pages struct {
	grpc.ClientStream
	ctx     context.Context //nolint:containedctx // of the stream, as gRPC has it
	client  pb.KVClient
	request *pb.RangeRequest
	options []grpc.CallOption // with the largest size of an answer
	limit   int64             // of the whole range; 0: none
	size    int64             // of the next page, in keys
	sent    int64
	newest  int64 // the revision of the first page's answer
	over    bool
}

// Recv implements pb.KV_RangeStreamClient.
func (p *pages) Recv() (*pb.RangeStreamResponse, error) {
	if p.over {
		return nil, io.EOF
	}
	p.size = cmp.Or(p.size, firstKeys)
	p.request.Limit = p.size
	if p.limit > 0 {
		p.request.Limit = min(p.size, p.limit-p.sent)
	}
	page, err := p.client.Range(p.ctx, p.request, p.options...)
	if err != nil {
		return nil, err
	}
	if p.newest == 0 {
		p.newest = page.GetHeader().GetRevision()
		if p.request.Revision == 0 {
			p.request.Revision = p.newest
		}
	}
	p.size = nextSize(p.size, page.Kvs)
	before := p.sent
	p.sent += int64(len(page.Kvs))
	chunk := &pb.RangeResponse{Kvs: page.Kvs}
	if page.More && p.sent != p.limit {
		p.request.Key = append(bytes.Clone(page.Kvs[len(page.Kvs)-1].Key), 0)
	} else {
		p.over = true
		chunk.Header, chunk.More, chunk.Count = page.Header, page.More, before+page.Count
		if chunk.Header != nil {
			chunk.Header.Revision = p.newest
		}
	}
	return &pb.RangeStreamResponse{RangeResponse: chunk}, nil
}

// nextSize fits the number of keys to the bytes of those that came last.
func nextSize(size int64, kvs []*mvccpb.KeyValue) int64 {
	bytes := 0
	for _, kv := range kvs {
		bytes += len(kv.Key) + len(kv.Value)
	}
	return max(1, min(pageKeys, 4*size, size*pageBytes/int64(max(bytes, 1))))
}

// drained is a KV whose streams end with their context. etcd's client holds the
// next chunk even when its reader is gone.
type drained struct{ clientv3.KV }

// GetStream implements clientv3.KV.
func (d drained) GetStream(ctx context.Context, key string, opts ...clientv3.OpOption) (clientv3.GetStreamChan, error) {
	from, err := d.KV.GetStream(ctx, key, opts...)
	if err != nil {
		return nil, err
	}
	to := make(chan clientv3.RangeStreamResponse, 1)
	go func() {
		defer close(to)
		for chunk := range from {
			select {
			case to <- chunk:
			case <-ctx.Done():
				for last := range from {
					chunk = last
				}
				select {
				case to <- chunk: // why it ended, for a reader that is still there
				default:
				}
				return
			}
		}
	}()
	return to, nil
}

func newKV(client pb.KVClient, c *clientv3.Client) clientv3.KV {
	return drained{clientv3.NewKVFromKVClient(&streaming{KVClient: client}, c)}
}
