// Package turns has large requests compute one after another. Go's scheduler gives a
// goroutine that computes 10 ms before the next: with twenty of them on two processors,
// a request that needs a tenth of a millisecond waits for a hundred. Those who wait for
// a turn leave a processor to the others.
package turns

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Large is how many bytes of a body or an object make a request a large one: they take
// about a millisecond.
const Large = 64 << 10

// most is how long a turn takes at most. What takes longer goes on without it, and
// so does what waits for something that nobody said.
const most = time.Second

// Line is where large requests wait for their turn: each user has as many as the next
// one, however many requests wait.
type Line struct {
	mu      sync.Mutex
	free    int
	waiting map[string][]waiter
	users   []string             // who wait, in the order of their turns
	held    map[string]int       // requests of users whose others do not begin
	quiet   int                  // requests for which the server computes: only its own go on
	wanting int                  // requests that want turns and have not ended
	tell    func(computing bool) // nil: nobody
}

// waiter is a request in the line.
type waiter struct {
	turn  chan struct{} // closed when it is its turn
	begun bool          // has had a turn before
	own   bool          // is of the server itself
}

// New returns a line in which so many requests have a turn at the same time.
func New(places int) *Line {
	return &Line{free: places, waiting: map[string][]waiter{}, held: map[string]int{}}
}

// Tell has a function called when there is a large request after there was none, and when
// there is none any more. It must not block. Call Tell before turns are taken.
func (l *Line) Tell(f func(computing bool)) {
	if l != nil {
		l.tell = f
	}
}

// want counts the requests that want turns.
func (l *Line) want(more int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.wanting
	if l.wanting += more; l.tell != nil && (before == 0 || l.wanting == 0) {
		l.tell(l.wanting > 0)
	}
}

// may tells whether a request of a user may have a free place.
func (l *Line) may(user string, w waiter) bool {
	return w.own || l.quiet == 0 && (w.begun || l.held[user] == 0)
}

// take returns true when it is the turn of a request, and false when the context or the
// request ends before. Among the user's own requests, one that has begun goes first: it
// holds memory.
func (l *Line) take(ctx context.Context, t *Turn, begun bool) bool {
	user := t.user
	w := waiter{make(chan struct{}), begun, t.own}
	l.mu.Lock()
	if l.free > 0 && l.may(user, w) {
		l.free--
		l.mu.Unlock()
		return true
	}
	if len(l.waiting[user]) == 0 {
		l.users = append(l.users, user)
	}
	at := len(l.waiting[user])
	if begun {
		at = 0
	}
	l.waiting[user] = slices.Insert(l.waiting[user], at, w)
	l.mu.Unlock()
	select {
	case <-w.turn:
		return true
	case <-ctx.Done():
	case <-t.request:
	case <-t.over:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if at = slices.Index(l.waiting[user], w); at < 0 { // it came just now
		l.free++
		l.next()
		return false
	}
	l.remove(user, at)
	return false
}

// give ends a turn.
func (l *Line) give() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free++
	l.next()
}

// next gives a free place to the next user who may have it.
func (l *Line) next() {
	at := slices.IndexFunc(l.users, func(user string) bool { return l.may(user, l.waiting[user][0]) })
	if at < 0 || l.free == 0 {
		return
	}
	l.free--
	user := l.users[at]
	close(l.waiting[user][0].turn)
	l.remove(user, 0)
	if len(l.waiting[user]) > 0 { // behind the others
		l.users = append(slices.Delete(l.users, at, at+1), user)
	}
}

// fill gives all free places that may be had.
func (l *Line) fill() {
	for range l.free {
		l.next()
	}
}

// hold keeps other requests of a user from beginning, until let is called.
func (l *Line) hold(user string) (let func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[user]++
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.held[user]--; l.held[user] == 0 {
			delete(l.held, user)
		}
		l.fill()
	})
}

// hush keeps all requests from beginning and going on, but for the server's own, until let
// is called.
func (l *Line) hush() (let func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.quiet++
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.quiet--
		l.fill()
	})
}

// remove takes a request out of the line.
func (l *Line) remove(user string, at int) {
	l.waiting[user] = slices.Delete(l.waiting[user], at, at+1)
	if len(l.waiting[user]) == 0 {
		delete(l.waiting, user)
		l.users = slices.DeleteFunc(l.users, func(u string) bool { return u == user })
	}
}

// Turn is that of one request, which may have several goroutines. Nil is that of a request
// that needs none.
type Turn struct {
	line    *Line
	user    string
	own     bool            // the server makes the request itself
	request <-chan struct{} // closed when the request ends, nil if nobody knows

	mu      sync.Mutex
	over    chan struct{} // closed by End; most requests wait for no turn and have none
	timer   *time.Timer   // not nil while it lasts
	waiting chan struct{} // not nil while one waits in the line; closed when it does not
	resting int           // how many rest
	wanted  bool
	begun   bool // had its turn
	ended   bool
}

// Of returns the turn of a user's request, which begins when it is taken. It is nil when
// there is no line. Whoever is to have one share of the turns has one name.
func (l *Line) Of(user string) *Turn {
	if l == nil {
		return nil
	}
	return &Turn{line: l, user: user}
}

// Own is Of for a request that the server makes itself, to do what others asked for: it does
// not wait for them.
func (l *Line) Own(client string) *Turn {
	t := l.Of(client)
	if t != nil {
		t.own = true
	}
	return t
}

type key struct{}

// With returns a context of the request from which the turn can be taken. Nobody waits for
// the turn after the end of the given context. Call it before the turn is taken.
func (t *Turn) With(ctx context.Context) context.Context {
	if t != nil {
		t.request = ctx.Done()
	}
	return context.WithValue(ctx, key{}, t)
}

// From returns the turn of a request, nil if it needs none.
func From(ctx context.Context) *Turn {
	t, _ := ctx.Value(key{}).(*Turn)
	return t
}

// Take waits for the turn of a request that turned out to be large. It returns at once
// when the request has its turn, and when the context, the request or its turn ends.
func (t *Turn) Take(ctx context.Context) {
	if t == nil {
		return
	}
	for ctx.Err() == nil {
		t.mu.Lock()
		if t.ended || t.timer != nil {
			t.mu.Unlock()
			return
		}
		if !t.wanted {
			t.wanted = true
			t.line.want(1)
		}
		waiting, begun := t.waiting, t.begun
		if waiting == nil {
			t.waiting = make(chan struct{})
		}
		if t.over == nil {
			t.over = make(chan struct{})
		}
		t.mu.Unlock()
		if waiting == nil {
			t.begin(t.line.take(ctx, t, begun))
			return
		}
		select { // another goroutine waits for the same turn
		case <-waiting:
		case <-ctx.Done():
		}
	}
}

// TakeFor is Take for a request in which something of so many bytes was found, if that is
// large.
func (t *Turn) TakeFor(ctx context.Context, bytes int64) {
	if bytes >= Large {
		t.Take(ctx)
	}
}

// begin ends the wait in the line, and begins the turn if it came.
func (t *Turn) begin(came bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.waiting)
	t.waiting = nil
	if !came {
		return
	}
	if t.ended {
		t.line.give()
		return
	}
	t.begun = true
	var timer *time.Timer
	timer = time.AfterFunc(most, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.timer == timer {
			t.give()
		}
	})
	t.timer = timer
}

func (t *Turn) give() {
	t.timer.Stop()
	t.timer = nil
	t.line.give()
}

// Rest ends a turn while the request waits for something else: a storage, a webhook or
// its client. It goes on, when it is its turn again, when the function is called: of
// goroutines that rest at the same time, the last one waits for the turn.
func (t *Turn) Rest() (resume func(context.Context)) {
	if t == nil {
		return func(context.Context) {}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.give()
	}
	if !t.wanted {
		return func(context.Context) {}
	}
	t.resting++
	woke := sync.OnceValue(func() (last bool) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.resting--
		return t.resting == 0
	})
	return func(ctx context.Context) {
		if woke() {
			t.Take(ctx)
		}
	}
}

// Await is Rest while the request waits for others of its kind, with what it holds in
// memory: meanwhile, but for no longer than a turn, no other large request of the user begins.
func (t *Turn) Await() (resume func(context.Context)) {
	return t.rest(func(l *Line) func() { return l.hold(t.user) })
}

// Yield is Rest while the server computes for the request, and makes requests of its own: it
// has the turn. No other large request begins or goes on, for no longer than a turn.
func (t *Turn) Yield() (resume func(context.Context)) {
	return t.rest((*Line).hush)
}

// rest is Rest during which others are kept waiting, if the request is a large one.
func (t *Turn) rest(keep func(*Line) (let func())) (resume func(context.Context)) {
	if !t.isLarge() {
		return t.Rest()
	}
	let := keep(t.line)
	late := time.AfterFunc(most, let)
	rested := t.Rest()
	return func(ctx context.Context) {
		late.Stop()
		let()
		rested(ctx)
	}
}

// isLarge tells whether the request has wanted a turn.
func (t *Turn) isLarge() bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.wanted
}

// End ends the turn of a request for good, and the wait for it.
func (t *Turn) End() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	t.ended = true
	if t.over != nil {
		close(t.over)
	}
	if t.wanted {
		t.line.want(-1)
	}
	if t.timer != nil {
		t.give()
	}
}
