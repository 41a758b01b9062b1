package controlplane

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// writeTimeout is how long a request that is no watch may take where the server
// listens, its answer included: no answer takes longer to make than requestTimeout.
const writeTimeout = requestTimeout + 15*time.Second

// pace cuts off a client that does not take what is written. A handler that waits
// for a client holds its answer, also after its request timed out: upstream's timeout
// waits for the write.
type pace struct {
	connection *http.ResponseController
	stall      time.Duration

	mu      sync.Mutex
	timer   *time.Timer
	writing bool
}

// of paces what is written to w.
func (p *pace) of(w http.ResponseWriter, stall time.Duration) {
	p.connection, p.stall = http.NewResponseController(w), stall
}

// piece is how many bytes a client has to take before it may take its time again.
const piece = 64 << 10

// write writes b piece by piece, each for a bounded time.
func (p *pace) write(w http.ResponseWriter, b []byte) (int, error) {
	for n := 0; ; {
		next := min(n+piece, len(b))
		wrote, err := p.one(w, b[n:next])
		if n += wrote; err != nil || n == len(b) {
			return n, err
		}
	}
}

func (p *pace) one(w http.ResponseWriter, b []byte) (int, error) {
	p.begin()
	defer p.end()
	return w.Write(b)
}

func (p *pace) begin() {
	if p.stall == Unlimited {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writing = true
	if p.timer == nil {
		p.timer = time.AfterFunc(p.stall, p.cut)
		return
	}
	p.timer.Reset(p.stall)
}

func (p *pace) end() {
	if p.stall == Unlimited {
		return
	}
	p.timer.Stop()
	p.mu.Lock() // a cut that began ends before the handler does
	defer p.mu.Unlock()
	p.writing = false
}

// cut ends the write that waits: it resets the stream, or fails the connection.
func (p *pace) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.writing {
		_ = p.connection.SetWriteDeadline(time.Unix(1, 0)) // a handler that is called without a connection has none
	}
}

// pacedWatch is the answer to a watch.
type pacedWatch struct {
	http.ResponseWriter

	pace pace
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (w *pacedWatch) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements http.ResponseWriter.
func (w *pacedWatch) Write(p []byte) (int, error) { return w.pace.write(w.ResponseWriter, p) }

// Flush implements http.Flusher.
func (w *pacedWatch) Flush() {
	w.pace.begin()
	defer w.pace.end()
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// withPace ends watches whose clients do not take their events, and takes from
// watches and other long requests the time limit that all have where the server
// listens.
func withPace(h http.Handler, stall time.Duration, longRunning request.LongRunningRequestCheck) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || !longRunning(r, info) {
			h.ServeHTTP(w, r)
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // where there is one
		if info.Verb != "watch" || stall == Unlimited {
			h.ServeHTTP(w, r)
			return
		}
		paced := &pacedWatch{ResponseWriter: w}
		paced.pace.of(w, stall)
		h.ServeHTTP(responsewriter.WrapForHTTP1Or2(paced), r)
	})
}
