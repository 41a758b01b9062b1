package storage

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/transfer"
)

// Compact drops all history of a storage that no server uses.
func Compact(ctx context.Context, s controlplane.Storage) error {
	return transfer.With(ctx, s.Open(), func(c *clientv3.Client) error { return controlplane.Compact(ctx, c, "/") })
}

// Defragment has a storage that no server uses give back what it does not need. It drops all history first.
func Defragment(ctx context.Context, s controlplane.Storage) (err error) {
	b := s.Open()
	defer func() { err = errors.Join(err, b.Stop(context.WithoutCancel(ctx))) }()
	if err := b.Start(ctx); err != nil {
		return err
	}
	c, err := b.Client()
	if err != nil {
		return fmt.Errorf("compact the storage: %w", err)
	}
	defer func() { _ = c.Close() }() // its error only says that it was closed
	if err := controlplane.Compact(ctx, c, "/"); err != nil {
		return err
	}
	return controlplane.Defragment(ctx, b)
}
