package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// collector takes what servers trace, and forgets it.
type collector struct {
	address string
	server  *http.Server
	ended   chan error
	calls   atomic.Int64
}

// listenForSpans answers every call of gRPC with an empty message, which says of
// spans that all were accepted.
func listenForSpans(ctx context.Context) (*collector, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	c := &collector{address: listener.Addr().String(), ended: make(chan error, 1)}
	c.server = &http.Server{
		Protocols: protocols, ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c.calls.Add(1)
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Trailer", "Grpc-Status")
			_, _ = w.Write(make([]byte, 5)) // not compressed, no bytes
			w.Header().Set("Grpc-Status", "0")
		}),
	}
	go func() { c.ended <- c.server.Serve(listener) }()
	return c, nil
}

// Close stops listening.
func (c *collector) Close() error {
	err := c.server.Close()
	if ended := <-c.ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}
