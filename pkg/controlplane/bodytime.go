package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

const (
	// bodyRate is how many bytes of a body buy its sender another second.
	bodyRate = 16 << 10
	// discarded is how much of a body Go's HTTP/1.1 server reads before it sends an answer
	// that did not need it. https://pkg.go.dev/net/http#Request (Body)
	discarded = 256 << 10
)

// bodiesInTime ends requests whose body does not arrive in time: all together the
// server waits for it as long as the limit says, and longer for what comes (bodyRate),
// but never longer than requestTimeout. A request that waits for its body may hold the
// place of another one. With HTTP/1.1 the limit holds also for what Go's server reads
// of a body by itself before it sends even a refusal.
func bodiesInTime(h http.Handler, limit time.Duration) http.Handler {
	if limit == Unlimited {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// With HTTP/2 there is always a body. That of a request to read is read by nobody.
		reads := r.ContentLength == 0 && (r.Method == http.MethodGet || r.Method == http.MethodHead)
		if reads || r.Body == nil || r.Body == http.NoBody {
			h.ServeHTTP(w, r)
			return
		}
		connection := http.NewResponseController(w)
		body := &timedBody{ReadCloser: r.Body, connection: connection, limit: limit, stream: r.ProtoMajor == 2}
		body.watch.cut = func() { _ = connection.SetReadDeadline(time.Unix(1, 0)) }
		if r.ProtoMajor == 1 {
			unread := int64(discarded)
			if r.ContentLength >= 0 {
				unread = min(unread, r.ContentLength)
			}
			body.until(time.Now().Add(limit + bought(unread)))
		}
		defer body.leave()
		// A copy: Go's server looks at the original body to see that it need not read a large one.
		r = r.WithContext(context.WithValue(r.Context(), bodyKey{}, body))
		r.Body = body
		h.ServeHTTP(w, r)
	})
}

// withoutEnd lets the bodies of requests that may run without an end take their time:
// what a proxy passes on may be a conversation.
func withoutEnd(h http.Handler, longRunning apirequest.LongRunningRequestCheck) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody {
			info, found := apirequest.RequestInfoFrom(r.Context())
			if body, timed := r.Context().Value(bodyKey{}).(*timedBody); timed && found && longRunning(r, info) {
				body.free()
			}
		}
		h.ServeHTTP(w, r)
	})
}

// bodyKey is that of a request's *timedBody in its context.
type bodyKey struct{}

// timedBody counts how long its reader waits.
type timedBody struct {
	io.ReadCloser
	stream bool // of HTTP/2
	watch  stopwatch
	limit  time.Duration
	waited time.Duration
	read   int64

	mu         sync.Mutex
	connection *http.ResponseController // nil when the request is over: it belongs to others then
	deadline   time.Time
	unlimited  bool
}

// bought is the time that so many bytes are worth.
func bought(bytes int64) time.Duration {
	return time.Duration(bytes) * time.Second / bodyRate
}

// Read implements io.Reader.
func (b *timedBody) Read(p []byte) (int, error) {
	begun := time.Now()
	b.begin(begun.Add(b.left()))
	n, err := b.ReadCloser.Read(p)
	b.watch.end() // of a stream
	b.waited += time.Since(begun)
	b.read += int64(n)
	switch {
	case errors.Is(err, io.EOF):
		b.whole()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusRequestTimeout, Reason: metav1.StatusReasonTimeout,
			Message: fmt.Sprintf("the body came too slowly: %d bytes in %v; send it faster, or less at once",
				b.read, b.waited.Round(time.Millisecond)),
		}}
	}
	return n, err
}

// left is how long the reader may still wait.
func (b *timedBody) left() time.Duration {
	return min(b.limit+bought(b.read), requestTimeout) - b.waited
}

// begin has the read that begins end at a time. The server of HTTP/2 has another goroutine
// set a deadline, and most bodies are there when they are read.
func (b *timedBody) begin(deadline time.Time) {
	if b.stream {
		b.watch.begin(deadline)
	} else {
		b.until(deadline)
	}
}

// until has reads of HTTP/1.1 end at a time. Times that are about the same are one, because
// setting them costs more than reading a little.
func (b *timedBody) until(deadline time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.connection == nil || b.unlimited || deadline.Sub(b.deadline).Abs() <= b.limit/16 {
		return
	}
	b.deadline = deadline
	_ = b.connection.SetReadDeadline(deadline) // a server that cannot has limits of its own
}

// whole says that nothing more comes. The deadline of an HTTP/1.1 connection holds also
// for what follows; that of HTTP/2 is the body's alone.
func (b *timedBody) whole() {
	if !b.stream {
		b.free()
	}
}

// free takes the limit away: what follows, as in a watch, has none.
func (b *timedBody) free() {
	if b.stream {
		b.watch.stop()
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.connection != nil && !b.unlimited {
		_ = b.connection.SetReadDeadline(time.Time{})
	}
	b.unlimited = true
}

// leave ends the use of the connection. A handler whose time is over may still read.
func (b *timedBody) leave() {
	b.watch.stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.connection = nil
}
