// Package tied ties connections that are taken from Go's server to the contexts of their
// requests. Nothing else ends the context of such a request when its client goes away, or
// the connection when the context ends.
package tied

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"sync"

	"k8s.io/streaming/pkg/httpstream"
)

// requestKey is that of the *http.Request in its context.
type requestKey struct{}

// Upgrade returns the request that a context is of, if it comes from [Handler] and is to
// upgrade its connection, or nil.
func Upgrade(ctx context.Context) *http.Request {
	r, _ := ctx.Value(requestKey{}).(*http.Request)
	return r
}

// Handler has a handler serve requests whose connections it may take: such a connection is
// closed when the request's context ends or the handler returns, and the context ends when
// the client is gone, or has sent all it will, whether or not somebody reads it: who speaks
// SPDY stops reading when the client says that it goes away.
func Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !httpstream.IsUpgradeRequest(r) {
			h.ServeHTTP(w, r)
			return
		}
		ctx, end := context.WithCancel(context.WithValue(r.Context(), requestKey{}, r))
		t := &taker{answer: answer{w}, ctx: ctx, end: end}
		defer t.close()
		h.ServeHTTP(t, r.WithContext(ctx))
	})
}

// answer hides what the answer is made of: upstream looks for the writer of the server to
// take the connection from, past all that watch who takes it.
// https://github.com/kubernetes/cri-streaming/blob/v0.37.2/pkg/streaming/remotecommand/websocket.go#L86
type answer struct{ w http.ResponseWriter }

// Header implements http.ResponseWriter.
func (a answer) Header() http.Header { return a.w.Header() }

// Write implements http.ResponseWriter.
func (a answer) Write(p []byte) (int, error) { return a.w.Write(p) }

// WriteHeader implements http.ResponseWriter.
func (a answer) WriteHeader(status int) { a.w.WriteHeader(status) }

// Flush implements http.Flusher.
func (a answer) Flush() { _ = http.NewResponseController(a.w).Flush() } // where there is something to flush

// CloseNotify implements http.CloseNotifier, without which upstream's wrappers of an answer
// have no Hijack. Nobody uses the channel.
func (answer) CloseNotify() <-chan bool { return nil }

// taker is the answer to a request that may take its connection.
type taker struct {
	answer
	ctx context.Context //nolint:containedctx // that of the request
	end context.CancelFunc

	mu    sync.Mutex
	taken *Connection
}

var _ http.Hijacker = &taker{}

// Hijack implements http.Hijacker.
func (t *taker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(t.w).Hijack()
	if err != nil {
		return nil, nil, err
	}
	c := Receiving(conn, buffered.Reader, t.end)
	context.AfterFunc(t.ctx, func() { _ = c.Close() })
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken = c
	return c, bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c)), nil
}

// close ends the context, and closes the connection if it was taken: who took it may not
// have, after an error.
func (t *taker) close() {
	t.end()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken != nil {
		_ = t.taken.Close()
		<-t.taken.done
	}
}
