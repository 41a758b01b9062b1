// Package loopback lets clients in the process reach a handler without a
// listener: an http.RoundTripper that calls the handler directly. It needs no
// socket, no TLS and no HTTP framing, holds no connection, and costs nothing
// while no request runs.
package loopback

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/sailplane-dev/sailplane/pkg/internal/election"
)

// Transport is a client's way to a handler in the same process.
type Transport struct {
	handler atomic.Pointer[http.Handler]
	running sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	answers map[*pipe]struct{} // of the running handlers
}

// ErrClosed is returned for requests after Close.
var ErrClosed = errors.New("loopback: the server is stopped")

// ErrNoHandler is returned for requests before Serve.
var ErrNoHandler = errors.New("loopback: the server is not serving yet")

// Serve sets the handler that requests reach.
func (t *Transport) Serve(h http.Handler) { t.handler.Store(&h) }

// Close refuses further requests, waits for the running handlers and drops the
// handler, so that a kept client config keeps no plane alive. End running requests
// first: they end when their context or their server does.
func (t *Transport) Close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.running.Wait()
	t.handler.Store(nil)
}

// Cut ends the answers of the running handlers, like a server that closes its
// connections: a handler no longer waits for a client that does not read.
func (t *Transport) Cut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for p := range t.answers {
		p.end(io.ErrUnexpectedEOF)
	}
}

// RoundTrip calls the handler and returns as soon as it has written its header;
// the body streams. Source: http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	body := newPipe()
	term, answered, err := send(req)
	if err != nil {
		closeBody(req)
		return nil, err
	}
	h, err := t.enter(body)
	if err != nil {
		answered()
		closeBody(req)
		return nil, err
	}
	// The handler's context ends with the client's and has none of its values, but for the
	// term: a request made while another is handled has its own values.
	ctx, cancel := context.WithCancel(term)
	detach := context.AfterFunc(req.Context(), cancel)
	in := inbound(ctx, req)
	w := &writer{header: make(http.Header), pipe: body, wrote: make(chan struct{}), gone: make(chan bool, 1)}
	go func() {
		defer answered()
		defer t.leave(body)
		defer cancel()
		defer detach()
		defer closeBody(req)
		err := w.serve(*h, in)
		if cause := req.Context().Err(); cause != nil {
			err = cause // what a handler wrote after it was told to end is incomplete
		}
		body.end(err)
	}()
	stop := context.AfterFunc(req.Context(), func() { body.end(req.Context().Err()) })
	select {
	case <-w.wrote:
	case <-req.Context().Done():
	}
	// Also if the handler was faster: it may have been told to end, and answered that.
	if err := req.Context().Err(); err != nil {
		cancel()
		return nil, err
	}
	if w.failed != nil {
		stop()
		return nil, w.failed
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", w.status, http.StatusText(w.status)), StatusCode: w.status,
		Proto: "HTTP/2.0", ProtoMajor: 2, Header: w.sent, ContentLength: -1, Request: req,
		Body: &responseBody{pipe: body, end: func() { stop(); cancel() }},
	}, nil
}

// send returns the context of a request's handler, which is bound to the term of elected work, and
// what is called when it has returned. Reads change nothing, and go on.
func send(req *http.Request) (ctx context.Context, answered func(), err error) {
	ctx, answered = context.Background(), func() {}
	lease := election.From(req.Context())
	if lease == nil || req.Method == http.MethodGet {
		return ctx, answered, nil
	}
	term, answered, err := lease.Send()
	if err != nil {
		return nil, nil, err
	}
	return election.Bind(ctx, term), answered, nil
}

func (t *Transport) enter(answer *pipe) (*http.Handler, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, ErrClosed
	}
	h := t.handler.Load()
	if h == nil {
		return nil, ErrNoHandler
	}
	t.running.Add(1)
	if t.answers == nil {
		t.answers = map[*pipe]struct{}{}
	}
	t.answers[answer] = struct{}{}
	return h, nil
}

func (t *Transport) leave(answer *pipe) {
	t.mu.Lock()
	delete(t.answers, answer)
	t.mu.Unlock()
	t.running.Done()
}

type contextKey struct{}

// From tells whether the context is that of a request through a Transport.
func From(ctx context.Context) bool {
	came, _ := ctx.Value(contextKey{}).(bool)
	return came
}

// inbound returns the request as the handler sees it.
func inbound(ctx context.Context, req *http.Request) *http.Request {
	in := req.Clone(context.WithValue(ctx, contextKey{}, true))
	in.RequestURI = req.URL.RequestURI()
	in.RemoteAddr = "127.0.0.1:0"
	in.Proto, in.ProtoMajor, in.ProtoMinor = "HTTP/2.0", 2, 0
	if in.Host == "" {
		in.Host = req.URL.Host
	}
	if in.Body == nil {
		in.Body = http.NoBody
	}
	return in
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

// responseBody ends the handler's request when the client closes the body.
type responseBody struct {
	*pipe
	end func()
}

func (b *responseBody) Close() error {
	b.end()
	return b.pipe.Close()
}

// writer is the handler's http.ResponseWriter. Writes block while the buffer is
// full, as on a connection with a full window.
type writer struct {
	header http.Header
	pipe   *pipe
	gone   chan bool

	once   sync.Once
	wrote  chan struct{}
	sent   http.Header
	status int
	failed error
}

// serve runs the handler; a panic ends the request as it would end a connection.
func (w *writer) serve(h http.Handler, req *http.Request) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("loopback: handler of %s %s panicked: %v\n%s", req.Method, req.URL.Path, r, debug.Stack())
			if cause, ok := r.(error); ok && errors.Is(cause, http.ErrAbortHandler) {
				err = io.ErrUnexpectedEOF
			}
			w.once.Do(func() { w.failed = err; close(w.wrote) })
		}
	}()
	h.ServeHTTP(w, req)
	w.WriteHeader(http.StatusOK)
	return io.EOF
}

// Header implements http.ResponseWriter.
func (w *writer) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter; the first call counts.
func (w *writer) WriteHeader(status int) {
	if status >= 100 && status < 200 {
		return
	}
	w.once.Do(func() {
		w.status, w.sent = status, w.header.Clone()
		close(w.wrote)
	})
}

// Write implements http.ResponseWriter.
func (w *writer) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.pipe.Write(p)
}

// Flush implements http.Flusher: there is no buffer, but the header goes out.
func (w *writer) Flush() { w.WriteHeader(http.StatusOK) }

// CloseNotify implements the deprecated http.CloseNotifier, which the API
// server's response writer decorators still look for. Requests end by context.
func (w *writer) CloseNotify() <-chan bool { return w.gone }
