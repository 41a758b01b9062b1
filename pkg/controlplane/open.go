package controlplane

import (
	"bufio"
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/sailplane-dev/sailplane/pkg/internal/loopback"
	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
	"github.com/sailplane-dev/sailplane/pkg/internal/store"
)

// parts is in how many parts open requests are looked at, one a second: each once a
// minute, and never all at once.
const parts = 60

// RulesChanged has open watches, and other requests that last, authorized again soon: call
// it in a running plane when the answers of an authorizer may have changed. Without it
// they are each minute, when their credentials are looked at again, too.
func (p *Plan) RulesChanged() { p.rules.Announce() }

// openRequests are the requests of a plane that last: watches. What allowed one may be
// taken back while it runs.
type openRequests struct {
	rules *signal.Change
	added chan struct{} // wakes who looks at them; has room for one

	mu    sync.Mutex
	all   [parts]map[*openRequest]struct{}
	next  int // turn of the next request
	n     int
	own   map[*openRequest]struct{} // of the server's own clients, which are not asked again
	ended bool
}

func newOpenRequests(rules *signal.Change) *openRequests {
	o := &openRequests{rules: rules, added: make(chan struct{}, 1), own: map[*openRequest]struct{}{}}
	for i := range o.all {
		o.all[i] = map[*openRequest]struct{}{}
	}
	return o
}

// openRequest is one of them. There may be many thousands: it has little of its own.
type openRequest struct {
	by     *inquiry      // nil: it is not asked again
	as     *http.Request // as it was authorized
	header http.Header   // as it came, with its credentials; nil: from one of the server's own clients
	login  user.Info     // who it came from, before impersonation
	turn   int
	end    context.CancelFunc
	served store.Watched

	mu      sync.Mutex
	refused *apierrors.StatusError
	taken   net.Conn // of an upgraded request
}

type openRequestKey struct{}

func openRequestOf(ctx context.Context) *openRequest {
	o, _ := ctx.Value(openRequestKey{}).(*openRequest)
	return o
}

// received goes before authentication, which removes credentials.
func (o *openRequests) received(h http.Handler, config *genericapiserver.Config) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || !config.LongRunningFunc(r, info) {
			h.ServeHTTP(w, r)
			return
		}
		one := &openRequest{}
		if !loopback.From(r.Context()) || r.Header.Get(authenticationv1.ImpersonateUserHeader) != "" {
			one.header = maps.Clone(r.Header)
		}
		ctx, end := context.WithCancel(context.WithValue(store.WithWatched(r.Context(), &one.served), openRequestKey{}, one))
		defer end()
		one.end = end
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

// loggedIn goes right after authentication.
func (o *openRequests) loggedIn(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if one := openRequestOf(r.Context()); one != nil {
			one.login, _ = request.UserFrom(r.Context())
		}
		h.ServeHTTP(w, r)
	})
}

// allowed goes right after authorization.
func (o *openRequests) allowed(h http.Handler, by *inquiry) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		one := openRequestOf(r.Context())
		if one == nil {
			h.ServeHTTP(w, r)
			return
		}
		if one.header != nil {
			one.by, one.as = by, r
		}
		o.add(one)
		defer o.remove(one)
		if httpstream.IsUpgradeRequest(r) {
			w = responsewriter.WrapForHTTP1Or2(&takeable{w, one})
		}
		h.ServeHTTP(w, r)
		if err := one.refusal(); err != nil && one.served.Load() && !one.isTaken() {
			writeRefusal(w, err)
		}
	})
}

func (o *openRequests) add(one *openRequest) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		one.end()
	}
	if one.by == nil {
		o.own[one] = struct{}{}
		return
	}
	one.turn = o.next
	o.next = (o.next + 1) % parts
	o.all[one.turn][one] = struct{}{}
	o.n++
	signal.Wake(o.added)
}

func (o *openRequests) remove(one *openRequest) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if one.by == nil {
		delete(o.own, one)
		return
	}
	delete(o.all[one.turn], one)
	o.n--
}

// end ends all requests, and those that come later at once.
func (o *openRequests) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	for one := range o.own {
		one.end()
	}
	for _, turn := range o.all {
		for one := range turn {
			one.end()
		}
	}
}

func (o *openRequests) empty() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.n == 0
}

// of returns the requests of a turn.
func (o *openRequests) of(turn int) []*openRequest {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Keys(o.all[turn]))
}

// run asks again about requests, each minute and when rules change, until the context ends.
func (o *openRequests) run(ctx context.Context) {
	defer func(done <-chan struct{}) { <-done }(background(func() { o.followRules(ctx) }))
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for turn := 0; ; turn = (turn + 1) % parts {
		if o.empty() { // an idle plane does not wake up each second
			select {
			case <-o.added:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-second.C:
			o.ask(ctx, turn, true)
		case <-ctx.Done():
			return
		}
	}
}

// followRules authorizes all requests when rules changed. Between two times it rests for
// ten times as long as it worked: rules may change all the time.
func (o *openRequests) followRules(ctx context.Context) {
	next := o.rules.Next()
	for {
		select {
		case <-next:
		case <-ctx.Done():
			return
		}
		next = o.rules.Next()
		began := time.Now()
		for turn := range parts {
			o.ask(ctx, turn, false)
		}
		rest := time.NewTimer(10 * time.Since(began))
		select {
		case <-rest.C:
		case <-ctx.Done():
			rest.Stop()
			return
		}
	}
}

// ask ends the requests of a turn that are no longer allowed.
func (o *openRequests) ask(ctx context.Context, turn int, login bool) {
	for _, one := range o.of(turn) {
		if ctx.Err() != nil {
			return
		}
		if err := one.by.ask(ctx, one, login); err != nil {
			one.refuse(err)
		}
	}
}

// refuse ends the request. The error is the last event of a watch.
func (o *openRequest) refuse(err *apierrors.StatusError) {
	o.mu.Lock()
	o.refused = err
	taken := o.taken
	o.mu.Unlock()
	o.end()
	if taken != nil {
		_ = taken.Close() // who uses it notices
	}
}

func (o *openRequest) refusal() *apierrors.StatusError {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.refused
}

func (o *openRequest) isTaken() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.taken != nil
}

// impersonates tells whether the request is made for somebody else.
func (o *openRequest) impersonates() bool {
	return o.header.Get(authenticationv1.ImpersonateUserHeader) != ""
}

// takeable is the answer to an upgrade: it keeps the connection, which no context ends.
type takeable struct {
	http.ResponseWriter
	of *openRequest
}

var _ http.Hijacker = &takeable{}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (t *takeable) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// Hijack implements http.Hijacker.
func (t *takeable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(t.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	t.of.taken = conn
	if t.of.refused != nil {
		_ = conn.Close()
		return nil, nil, errors.New("the request is no longer allowed")
	}
	return conn, buffered, nil
}

// sameUser tells whether two logins are of the same user with the same groups.
func sameUser(a, b user.Info) bool {
	return a.GetName() == b.GetName() && a.GetUID() == b.GetUID() && slices.Equal(a.GetGroups(), b.GetGroups()) &&
		reflect.DeepEqual(a.GetExtra(), b.GetExtra())
}
