package controlplane

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// CompactStorage drops all history that the server's storage keeps. Lists and watches of the past are
// refused then: their clients list again.
func (s *Server) CompactStorage(ctx context.Context) error {
	c, prefix := s.Stored()
	if c == nil {
		return errors.New("compact the storage: the server does not run")
	}
	return Compact(ctx, c, prefix)
}

// Compact drops all history of a storage.
func Compact(ctx context.Context, c *clientv3.Client, prefix string) error {
	r, err := c.Get(ctx, prefix, clientv3.WithCountOnly())
	if err == nil {
		_, err = c.Compact(ctx, r.Header.Revision, clientv3.WithCompactPhysical())
	}
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("compact the storage: %w", err)
	}
	return nil
}

// DefragmentStorage has the server's storage give back what it does not need, if it can ([Defragmenting]).
// Writes, or all requests, wait meanwhile.
func (s *Server) DefragmentStorage(ctx context.Context) error {
	h := s.running()
	if h == nil {
		return errors.New("defragment the storage: the server does not run")
	}
	return Defragment(ctx, h.stats.storage)
}

// Defragment has a storage give back what it does not need, if it can.
func Defragment(ctx context.Context, b Backend) error {
	d, ok := b.(Defragmenting)
	if !ok {
		return errors.New("defragment the storage: it cannot be: what runs it has to")
	}
	if err := d.Defragment(ctx); err != nil {
		return fmt.Errorf("defragment the storage: %w", err)
	}
	return nil
}
