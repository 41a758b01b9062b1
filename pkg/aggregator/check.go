package aggregator

import (
	"context"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/transport"

	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
)

const (
	// checkInterval is the pause between two checks of a server, and a fifth more at random:
	// several are not all checked at once.
	checkInterval = 400 * time.Millisecond
	// awayInterval is the pause while a server cannot be used.
	awayInterval = 700 * time.Millisecond
	// checkTimeout is how long a server may take to answer, as in kube-aggregator.
	checkTimeout = 5 * time.Second
	// lateAfter is when a server that has not answered is looked at, whether it is alive.
	lateAfter = 500 * time.Millisecond
	// discoverInterval is how often a server is asked what it serves.
	discoverInterval = 2 * time.Second
)

// server is an API server behind this one, with a goroutine that looks after it.
type server struct {
	*target
	id      string // of this plane, in header Via
	state   atomic.Pointer[state]
	wanted  atomic.Pointer[[]schema.GroupVersion] // of its APIServices
	changed func(*server)                         // called after each change of the state
	look    chan struct{}                         // a check must not wait

	proxy http.Handler
	hops  hops
	// census is of what it keeps; nil if nobody asks.
	census *census
	peer   atomic.Pointer[string] // what the server calls itself in header Via, if it is one of these

	// For the goroutine only.
	asked     time.Time // for discovery
	etag      string    // of its discovery
	indexETag string    // of the list of its documents

	swagger swagger
	end     context.CancelFunc
	done    chan struct{}
}

// errLost ends the requests to a server that is frozen or out of reach.
var errLost = errors.New("the server stopped answering")

func newServer(at place, id string, c *connections, changed func(*server)) *server {
	s := &server{target: newTarget(at, c), id: id, changed: changed, look: make(chan struct{}, 1), done: make(chan struct{})}
	s.state.Store(&state{err: errUnchecked, since: time.Now()})
	s.wanted.Store(&[]schema.GroupVersion{})
	s.proxy = s.newProxy()
	return s
}

// start looks after the server until stop is called, or the context ends.
func (s *server) start(ctx context.Context) {
	ctx, s.end = context.WithCancel(ctx)
	go func() {
		defer close(s.done)
		for ctx.Err() == nil {
			s.check(ctx)
			if s.census != nil {
				s.census.follow(ctx, s)
			}
			interval := checkInterval
			if s.state.Load().err != nil {
				interval = awayInterval
			}
			pause := time.NewTimer(interval + rand.N(interval/5))
			select {
			case <-ctx.Done():
			case <-pause.C:
			case <-s.look:
			}
			pause.Stop()
		}
	}()
}

// stop ends what runs for the server, requests to it too.
func (s *server) stop() {
	s.end()
	<-s.done
	if s.census != nil {
		s.census.stop()
	}
	s.hops.cut(errLost)
	s.close()
}

// want has the server asked for group versions, at once if there is a new one.
func (s *server) want(all []schema.GroupVersion) {
	before := s.wanted.Swap(&all)
	if slices.ContainsFunc(all, func(gv schema.GroupVersion) bool { return !slices.Contains(*before, gv) }) {
		signal.Wake(s.look)
	}
}

// check looks at the server once, and notes what it found.
func (s *server) check(ctx context.Context) {
	was, begun := s.state.Load(), time.Now()
	now := &state{since: was.since, found: was.found, failed: was.failed, documents: was.documents}
	now.err = s.healthy(ctx)
	now.latency = time.Since(begun)
	if now.err == nil && s.due(was, begun) {
		if now.err = s.discover(ctx, now); now.err == nil {
			s.readIndex(ctx, now)
		}
		s.asked = begun
	}
	if ctx.Err() != nil { // the plane stops, which says nothing of the server
		return
	}
	if (now.err == nil) != (was.err == nil) {
		now.since = begun
	}
	var late net.Error
	if now.err != nil && was.err == nil && errors.As(now.err, &late) && late.Timeout() {
		s.hops.cut(errLost)
	}
	s.state.Store(now)
	if !same(was, now) {
		s.changed(s)
	}
}

// due tells whether it is time to ask for discovery: the server is back, or something that its
// APIServices name is not available, or the time has come.
func (s *server) due(was *state, now time.Time) bool {
	return was.err != nil || now.Sub(s.asked) >= discoverInterval ||
		slices.ContainsFunc(*s.wanted.Load(), func(gv schema.GroupVersion) bool { return was.available(gv) != nil })
}

// same tells whether two states are the same for everybody but the one who measures them.
func same(a, b *state) bool {
	text := func(err error) string {
		if err == nil {
			return ""
		}
		return err.Error()
	}
	return text(a.err) == text(b.err) && reflect.DeepEqual(a.found, b.found) && maps.Equal(a.documents, b.documents) &&
		maps.EqualFunc(a.failed, b.failed, func(x, y error) bool { return text(x) == text(y) })
}

// healthy asks the server how it is. One that has no such path is healthy if it answers.
func (s *server) healthy(ctx context.Context) error {
	response, asked, err := s.get(ctx, "/readyz", nil)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	name := response.Header.Get("Via")
	s.peer.Store(&name)
	if response.StatusCode >= http.StatusInternalServerError {
		return &statusError{asked, response.StatusCode}
	}
	return nil
}

// get asks the server for a path, as this server. A server that takes long is waited for as
// long as it is alive.
func (s *server) get(ctx context.Context, path string, header http.Header) (_ *http.Response, asked string, _ error) {
	at, err := s.resolve()
	if err != nil {
		return nil, "", err
	}
	to := *at
	to.Path += path
	ctx, give := context.WithCancelCause(ctx)
	deadline := time.AfterFunc(checkTimeout, func() { give(slowError{}) })
	end := func() { deadline.Stop(); give(nil) }
	response, err := s.ask(ctx, give, to.String(), at, header)
	if err != nil {
		end()
		return nil, to.String(), &unreachable{to.String(), err}
	}
	response.Body = &limited{io.LimitReader(response.Body, maxDocument), response.Body, end}
	return response, to.String(), nil
}

// ask sends a request of this server, and gives up when nobody is alive at the address.
func (s *server) ask(ctx context.Context, give func(error), to string, at *url.URL, header http.Header) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, to, http.NoBody)
	if err != nil {
		return nil, err
	}
	maps.Copy(r.Header, header)
	s.sign(r)
	looked := make(chan struct{})
	late := time.AfterFunc(lateAfter, func() {
		defer close(looked)
		if err := s.alive(ctx, at); err != nil {
			give(err)
		}
	})
	response, err := s.RoundTrip(r)
	if !late.Stop() {
		<-looked
	}
	if cause := context.Cause(ctx); cause != nil {
		if err == nil {
			_ = response.Body.Close()
		}
		return nil, cause
	}
	return response, err
}

// sign has a request be one of this server itself.
func (s *server) sign(r *http.Request) {
	r.Header.Set("Via", via(r, s.id))
	transport.SetAuthProxyHeaders(r, self().GetName(), "", self().GetGroups(), nil)
}

// slowError is why a check ends that takes too long.
type slowError struct{}

func (slowError) Error() string   { return "no answer in " + checkTimeout.String() }
func (slowError) Timeout() bool   { return true }
func (slowError) Temporary() bool { return true }

// unreachable is the error of a server that does not answer.
type unreachable struct {
	url string
	err error
}

func (e *unreachable) Error() string {
	var broken *net.OpError
	if errors.As(e.err, &broken) {
		broken.Source = nil // another port each time, which would be another message
	}
	return "failing or missing response from " + e.url + ": " + e.err.Error()
}

func (e *unreachable) Unwrap() error { return e.err }

// maxDocument bounds what is read of a document of another server: the OpenAPI v2 of
// kube-apiserver has 4 MiB.
const maxDocument = 32 << 20

// limited is the body of an answer to a check.
type limited struct {
	io.Reader
	body io.Closer
	end  func()
}

// Close implements io.Closer.
func (l *limited) Close() error {
	err := l.body.Close()
	l.end()
	return err
}

// resources are those of a group version as the server lists them.
type resources = apidiscoveryv2.APIVersionDiscovery
