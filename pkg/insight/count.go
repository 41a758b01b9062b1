package insight

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/sailplane-dev/sailplane/pkg/internal/statuscode"
)

// What is kept of a request, in bytes: callers choose how long names, paths and
// methods are.
const (
	nameBytes = 200
	pathBytes = 200
	verbBytes = 20
)

const (
	// minutes is how many minutes the recent counts go back.
	minutes = 5
	// mostSlow is how many slow requests are kept.
	mostSlow = 20
)

// requests counts those of all planes.
type requests struct {
	slowAfter time.Duration

	mu      sync.Mutex
	total   *table
	recent  [minutes]*table // by minute
	minute  int64           // the present one, in Unix time
	watches map[caller]int  // those that are open; who has none has no entry
	slow    [mostSlow]slowRequest
	slowEnd int // where the next one goes
}

// slowRequest is one that took long; the zero value is none.
type slowRequest struct {
	SlowRequest
	plane *counter
}

func newRequests(slowAfter time.Duration) *requests {
	r := &requests{slowAfter: slowAfter, total: newTable(), watches: map[caller]int{}}
	for i := range r.recent {
		r.recent[i] = newTable()
	}
	return r
}

// add counts for a user.
func (r *requests) add(now time.Time, who caller, more counts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count(now, who, more)
}

// count needs the lock.
func (r *requests) count(now time.Time, who caller, more counts) {
	r.total.add(who, more)
	r.advance(now).add(who, more)
}

// advance drops the counts of minutes that are over, and returns the present one's. It
// needs the lock.
func (r *requests) advance(now time.Time) *table {
	minute := now.Unix() / 60
	for i := max(r.minute+1, minute-minutes+1); i <= minute; i++ {
		r.recent[i%minutes].clear()
	}
	r.minute = max(r.minute, minute)
	return r.recent[r.minute%minutes]
}

// open counts a watch that begins.
func (r *requests) open(now time.Time, who caller) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watches[who]++
	r.count(now, who, counts{requests: 1})
}

// close counts a watch that ends.
func (r *requests) close(now time.Time, who caller, failed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watches[who]--; r.watches[who] <= 0 {
		delete(r.watches, who)
	}
	if failed {
		r.count(now, who, counts{failed: 1})
	}
}

// late keeps a slow request.
func (r *requests) late(s slowRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slow[r.slowEnd] = s
	r.slowEnd = (r.slowEnd + 1) % mostSlow
}

// counter counts the requests of one plane.
type counter struct {
	to    *requests
	plane atomic.Pointer[string] // the name; nil before it is known
}

// name is the plane's name; empty for the root plane.
func (c *counter) name() string {
	if name := c.plane.Load(); name != nil {
		return *name
	}
	return ""
}

// wrap is a middleware.
func (c *counter) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		user, known := request.UserFrom(req.Context())
		info, parsed := request.RequestInfoFrom(req.Context())
		if !known || !parsed {
			next.ServeHTTP(w, req)
			return
		}
		begun, ok := request.ReceivedTimestampFrom(req.Context())
		if !ok {
			begun = time.Now()
		}
		a := &answer{Writer: statuscode.Writer{ResponseWriter: w}, who: caller{c, cut(user.GetName(), nameBytes)}, begun: begun}
		if info.Verb == "watch" {
			c.to.open(begun, a.who)
			defer a.watched()
		} else {
			defer a.served(info.Verb, req)
		}
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(a), req)
		a.returned = true
	})
}

// answer sees the code of an answer.
type answer struct {
	statuscode.Writer
	who      caller
	begun    time.Time
	returned bool // the handler did not panic
}

// status is the code that the client gets.
func (a *answer) status() int {
	switch {
	case a.Code != 0:
		return a.Code
	case a.returned:
		return http.StatusOK
	}
	return http.StatusInternalServerError
}

func (a *answer) failed() bool { return a.status() >= http.StatusBadRequest }

// watched counts a watch that is over.
func (a *answer) watched() { a.who.plane.to.close(time.Now(), a.who, a.failed()) }

// served counts any other request.
func (a *answer) served(verb string, req *http.Request) {
	to, now := a.who.plane.to, time.Now()
	took := now.Sub(a.begun)
	more := counts{requests: 1, seconds: took.Seconds()}
	if a.failed() {
		more.failed = 1
	}
	to.add(now, a.who, more)
	if took >= to.slowAfter {
		to.late(slowRequest{plane: a.who.plane, SlowRequest: SlowRequest{
			When: a.begun, User: strings.Clone(a.who.user), Verb: strings.Clone(cut(verb, verbBytes)),
			Path: strings.Clone(cut(req.URL.Path, pathBytes)), Code: a.status(), Seconds: took.Seconds(),
		}})
	}
}

// cut returns the beginning of a text, which then may end within a character: JSON
// replaces what is left of it.
func cut(text string, most int) string { return text[:min(len(text), most)] }
