//go:build unix

package replicas

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// balancer hands connections to servers that say that they are ready, as a Service does.
type balancer struct {
	listener net.Listener
	ask      http.Client

	mu      sync.Mutex
	servers []string // addresses of those that are ready
	known   []string
	next    int
}

// newBalancer starts one, until the test ends.
func newBalancer(t *testing.T) *balancer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	b := &balancer{listener: l, ask: http.Client{Timeout: time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // as the kubelet asks
	}}}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { b.probe(ctx) })
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { b.carry(ctx, c) })
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		running.Wait()
	})
	return b
}

// add has the balancer know a server.
func (b *balancer) add(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known = append(b.known, address)
}

// probe asks servers whether they are ready.
func (b *balancer) probe(ctx context.Context) {
	for ctx.Err() == nil {
		b.mu.Lock()
		known := slices.Clone(b.known)
		b.mu.Unlock()
		var ready []string
		for _, address := range known {
			r, err := b.ask.Get("https://" + address + "/readyz")
			if err != nil {
				continue
			}
			_ = r.Body.Close()
			if r.StatusCode == http.StatusOK {
				ready = append(ready, address)
			}
		}
		b.mu.Lock()
		b.servers = ready
		b.mu.Unlock()
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// dial connects to the next server.
func (b *balancer) dial() (net.Conn, error) {
	b.mu.Lock()
	servers := slices.Clone(b.servers)
	b.next++
	next := b.next
	b.mu.Unlock()
	var last error = io.ErrUnexpectedEOF
	for i := range servers {
		c, err := net.Dial("tcp", servers[(next+i)%len(servers)])
		if err == nil {
			return c, nil
		}
		last = err
	}
	return nil, last
}

// carry carries a connection.
func (b *balancer) carry(ctx context.Context, client net.Conn) {
	defer client.Close()
	server, err := b.dial()
	if err != nil {
		return
	}
	defer server.Close()
	defer context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })()
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
		both.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			_ = pair[0].(*net.TCPConn).CloseWrite()
		})
	}
	both.Wait()
}
