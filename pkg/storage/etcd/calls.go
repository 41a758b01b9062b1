package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// calls counts the requests that an etcd works on. If one is left when etcd
// stops, it reads a closed backend and panics.
type calls struct {
	failure *failure

	mu      sync.Mutex
	over    bool
	running sync.WaitGroup
}

// begin refuses calls that a failed etcd would never answer, and those that
// come when it stops. Without an error, end follows.
func (c *calls) begin() error {
	if err := c.failure.err(); err != nil {
		return status.Error(codes.Unavailable, fmt.Sprintf("embedded etcd has stopped: %v", err))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return status.Error(codes.Unavailable, "embedded etcd is stopping")
	}
	c.running.Add(1)
	return nil
}

func (c *calls) end() { c.running.Done() }

// finish refuses new calls and waits for the running ones, which a failed etcd
// may never answer.
func (c *calls) finish(ctx context.Context) {
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.running.Wait()
	}()
	select {
	case <-ended:
	case <-c.failure.happened:
	case <-ctx.Done():
	}
}

// guardedKV is etcd's KV service for as long as etcd runs.
type guardedKV struct {
	pb.KVServer
	calls  *calls
	keeper *keeper
	// told has what every client of this etcd heard of; nil if others have watches, too.
	told *told
}

// call calls a method of etcd's service while etcd runs.
func call[Request, Response any](
	ctx context.Context, g *guardedKV, r Request, method func(context.Context, Request) (Response, error),
) (response Response, err error) {
	if err := g.calls.begin(); err != nil {
		return response, err
	}
	defer g.calls.end()
	response, err = method(ctx, r)
	return response, g.answer(err)
}

// answer tells the writer whether there may be room soon.
func (g *guardedKV) answer(err error) error {
	if errors.Is(err, rpctypes.ErrGRPCNoSpace) && g.keeper.refused() {
		return status.Error(codes.ResourceExhausted, "embedded etcd is full of history and is dropping it: try again")
	}
	return err
}

// Range implements the etcd KV service. The only member acknowledges a write when it has
// applied it, so a read needs no round of raft to show every write that was acknowledged.
// But etcd sends the event of a write before such a read shows that write: one that is
// older than what was told is made again, with the round.
func (g *guardedKV) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	if g.told == nil || r.Serializable {
		return call(ctx, g, r, g.KVServer.Range)
	}
	atLeast := g.told.revision.Load()
	r.Serializable = true
	response, err := call(ctx, g, r, g.KVServer.Range)
	r.Serializable = false
	if errors.Is(err, rpctypes.ErrGRPCFutureRev) || err == nil && response.GetHeader().GetRevision() < atLeast {
		return call(ctx, g, r, g.KVServer.Range)
	}
	return response, err
}

// Put implements the etcd KV service.
func (g *guardedKV) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	return call(ctx, g, r, g.KVServer.Put)
}

// DeleteRange implements the etcd KV service.
func (g *guardedKV) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	return call(ctx, g, r, g.KVServer.DeleteRange)
}

// Txn implements the etcd KV service.
func (g *guardedKV) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	return call(ctx, g, r, g.KVServer.Txn)
}

// Compact implements the etcd KV service.
func (g *guardedKV) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	return call(ctx, g, r, g.KVServer.Compact)
}

// guardedLease is etcd's lease service, which needs room as writes do.
type guardedLease struct {
	pb.LeaseServer
	kv *guardedKV
}

// LeaseGrant implements the etcd lease service.
func (g *guardedLease) LeaseGrant(ctx context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	response, err := g.LeaseServer.LeaseGrant(ctx, r)
	return response, g.kv.answer(err)
}
