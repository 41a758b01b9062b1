package stream

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"sync"

	"github.com/sailplane-dev/sailplane/pkg/internal/tied"
)

// joined is a handler behind a connection in memory, for what can only talk to a server.
type joined struct {
	location  *url.URL
	transport *http.Transport

	server  *http.Server
	end     context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	stopped bool
}

// join serves requests with the handler until stop.
func join(ctx context.Context, h http.Handler) *joined {
	h = tied.Handler(h)
	l := listener{make(chan net.Conn), make(chan struct{})}
	ctx, end := context.WithCancel(ctx)
	j := &joined{
		location: &url.URL{Scheme: "http", Host: "stream"}, end: end,
		transport: &http.Transport{DialContext: l.dial},
	}
	j.server = &http.Server{
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: creation,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if j.begin() {
				defer j.running.Done()
				h.ServeHTTP(w, r)
			}
		}),
	}
	j.running.Go(func() { _ = j.server.Serve(l) }) // until Close
	return j
}

// begin counts a request, unless it comes too late.
func (j *joined) begin() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.stopped {
		j.running.Add(1)
	}
	return !j.stopped
}

// stop ends what is served, and waits for it.
func (j *joined) stop() {
	j.mu.Lock()
	j.stopped = true
	j.mu.Unlock()
	j.end()
	_ = j.server.Close()
	j.running.Wait()
}

// listener gives a server connections in memory.
type listener struct {
	accepted chan net.Conn
	closed   chan struct{}
}

// dial is an http.Transport.DialContext. The server reads from a buffer too, (tied):
// two sides that both write to each other without one would wait forever.
func (l listener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.accepted <- server:
		return tied.Receiving(client, client, func() {}), nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.accepted:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. The server calls it once.
func (l listener) Close() error {
	close(l.closed)
	return nil
}

// Addr implements net.Listener.
func (listener) Addr() net.Addr { return &net.UnixAddr{Net: "pipe", Name: "stream"} }
