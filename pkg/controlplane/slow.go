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

// stopwatch ends what waits for too long, again and again. Its timer looks at what waits
// now and then: to set one each time costs more than most waits do.
type stopwatch struct {
	cut func() // ends the wait of the moment

	mu       sync.Mutex
	timer    *time.Timer
	running  bool      // the timer is set
	deadline time.Time // of the wait; zero: nobody waits
	stopped  bool
}

// begin has a wait end at a time, which is no earlier than that of the wait before.
func (s *stopwatch) begin(deadline time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	s.deadline = deadline
	if !s.running {
		s.set()
	}
}

func (s *stopwatch) set() {
	s.running = true
	left := time.Until(s.deadline)
	if s.timer == nil {
		s.timer = time.AfterFunc(left, s.look)
		return
	}
	s.timer.Reset(left)
}

// end ends a wait. A cut that began is over when it returns.
func (s *stopwatch) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = time.Time{}
}

// stop is end for good: the timer would keep what waited.
func (s *stopwatch) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline, s.stopped = time.Time{}, true
	if s.timer != nil {
		s.timer.Stop()
	}
}

func (s *stopwatch) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = false
	switch {
	case s.deadline.IsZero(): // the next wait sets the timer
	case time.Now().Before(s.deadline):
		s.set()
	default:
		s.cut()
	}
}

// pace cuts off a client that does not take what is written. A handler that waits
// for a client holds its answer, also after its request timed out: upstream's timeout
// waits for the write.
type pace struct {
	stall time.Duration
	watch stopwatch
}

// of paces what is written to w: a client that is cut off has its stream reset, or its
// connection fails. The caller stops the watch in the end.
func (p *pace) of(w http.ResponseWriter, stall time.Duration) {
	connection := http.NewResponseController(w)
	p.stall = stall
	// A handler that is called without a connection has no deadline.
	p.watch.cut = func() { _ = connection.SetWriteDeadline(time.Unix(1, 0)) }
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
	defer p.watch.end()
	return w.Write(b)
}

func (p *pace) begin() {
	if p.stall != Unlimited {
		p.watch.begin(time.Now().Add(p.stall))
	}
}

// buffered is how much of an answer net/http keeps until it is flushed.
const buffered = 2 << 10

// pacedWatch is the answer to a watch.
type pacedWatch struct {
	http.ResponseWriter

	pace      pace
	unflushed int // bytes
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (w *pacedWatch) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements http.ResponseWriter. What is only buffered waits for nobody: most events
// are that small, and are flushed one by one.
func (w *pacedWatch) Write(p []byte) (int, error) {
	if w.unflushed += len(p); w.unflushed <= buffered {
		return w.ResponseWriter.Write(p)
	}
	return w.pace.write(w.ResponseWriter, p)
}

// Flush implements http.Flusher.
func (w *pacedWatch) Flush() {
	w.unflushed = 0
	w.pace.begin()
	defer w.pace.watch.end()
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
		defer paced.pace.watch.stop()
		h.ServeHTTP(responsewriter.WrapForHTTP1Or2(paced), r)
	})
}
