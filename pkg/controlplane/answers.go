package controlplane

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/sailplane-dev/sailplane/pkg/internal/loopback"
	"github.com/sailplane-dev/sailplane/pkg/internal/store"
	"github.com/sailplane-dev/sailplane/pkg/internal/turns"
)

// AnswerLimits bound what large answers cost: the memory that lists take on their way
// to the client, and how slowly clients may take what they asked for. Lists that hold
// less than 1 MiB are not counted.
type AnswerLimits struct {
	// Bytes is how much memory the lists of all users may hold at once, as estimated
	// from their objects: lists hold one object at a time, tables the metadata of all,
	// custom resources all objects when they are YAML or indented, and so do lists from
	// the storage. What does not fit waits for its turn. A list that needs more than all
	// runs alone, and gets 413 if it needs more than four times as much. Empty: 256 MiB.
	Bytes int
	// BytesPerUser is the part of it that one user may hold. A list that needs more
	// than that runs when the user has no other. Empty: a quarter of Bytes.
	BytesPerUser int
	// Wait is how long a list waits for its turn before it gets 429 with Retry-After.
	// Empty: 10 s.
	Wait time.Duration
	// Stall is how long a client may take for each 64 KiB of a large list or of the
	// events of a watch: then the answer ends, and with it an HTTP/1.1 connection, as
	// does an HTTP/2 connection that takes nothing at all. Other answers end 75 s after
	// the request came, where the server listens. Empty: 30 s.
	Stall time.Duration
}

// withDefaults has a value in every field.
func (l AnswerLimits) withDefaults() AnswerLimits {
	l.Bytes = cmp.Or(l.Bytes, 256<<20)
	if l.BytesPerUser == 0 {
		l.BytesPerUser = Unlimited
		if l.Bytes != Unlimited {
			l.BytesPerUser = max(l.Bytes/4, 1)
		}
	}
	l.Wait = cmp.Or(l.Wait, 10*time.Second)
	l.Stall = cmp.Or(l.Stall, 30*time.Second)
	return l
}

// check refuses values without a meaning.
func (l AnswerLimits) check() []error {
	var errs []error
	if l.Wait < 0 {
		errs = append(errs, fmt.Errorf("limits: Answers.Wait is %v: want a duration above 0, or 0 for the default", l.Wait))
	}
	if l.Stall < Unlimited {
		errs = append(errs, fmt.Errorf("limits: Answers.Stall is %v: want a duration above 0, 0 for the default, or Unlimited", l.Stall))
	}
	return errs
}

// budget is the memory that the large answers of a server share, whichever plane
// gives them. First come, first served, among users and for each user.
type budget struct {
	total, share int64
	wait         time.Duration
	all          *semaphore.Weighted

	mu    sync.Mutex
	users map[string]*purse
}

// purse is the part of one user.
type purse struct {
	*semaphore.Weighted

	holders int // which hold some of it, or wait
}

// maxHolders is how many large answers of one user may be held or wait at a time.
// Those that wait have seats of their priority level.
const maxHolders = 32

// tooLarge is how many times the memory of all large answers a list may not take alone.
const tooLarge = 4

// newBudget returns nil when nothing is limited.
func newBudget(l AnswerLimits) *budget {
	if l.Bytes == Unlimited {
		return nil
	}
	b := &budget{total: int64(l.Bytes), share: int64(l.BytesPerUser), wait: l.Wait, users: map[string]*purse{}}
	if b.share == Unlimited || b.share > b.total {
		b.share = b.total
	}
	b.all = semaphore.NewWeighted(b.total)
	return b
}

// enter returns the purse of a user, or nil when too many wait for it.
func (b *budget) enter(user string) *purse {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.users[user]
	if p == nil {
		p = &purse{Weighted: semaphore.NewWeighted(b.share)}
		b.users[user] = p
	}
	if p.holders == maxHolders {
		return nil
	}
	p.holders++
	return p
}

// leave forgets a user without answers.
func (b *budget) leave(user string, p *purse) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.holders--; p.holders == 0 {
		delete(b.users, user)
	}
}

// holding is what one answer holds of the budget.
type holding struct {
	budget      *budget
	user        string
	purse       *purse // nil: nothing
	own, shared int64  // held of the purse, and of the budget

	// The handler of a request that timed out may still compute beside its end.
	mu    sync.Mutex
	ended bool
}

// hold holds so many bytes in all. What exceeds the budget counts as all of it.
func (h *holding) hold(ctx context.Context, bytes int64) error {
	own, shared := min(bytes, h.budget.share), min(bytes, h.budget.total)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return h.refuse("the request has ended")
	}
	if h.purse != nil {
		return h.grow(own, shared)
	}
	p := h.budget.enter(h.user)
	if p == nil {
		return h.refuse("the user has %d large answers already: make fewer requests at once, or limit their size (limit=)", maxHolders)
	}
	ctx, cancel := context.WithTimeout(ctx, h.budget.wait)
	defer cancel()
	if err := p.Acquire(ctx, own); err != nil {
		h.budget.leave(h.user, p)
		return h.refuse("other large answers of the user took the memory that they may have (%d bytes): "+
			"make fewer requests at once, or limit their size (limit=)", h.budget.share)
	}
	if err := h.budget.all.Acquire(ctx, shared); err != nil {
		p.Release(own)
		h.budget.leave(h.user, p)
		return h.refuse("large answers took the memory that they may have (%d bytes)", h.budget.total)
	}
	h.purse, h.own, h.shared = p, own, shared
	return nil
}

// grow holds more without waiting: who holds something and waits may wait for one
// that waits for them.
func (h *holding) grow(own, shared int64) error {
	if more := own - h.own; more > 0 {
		if !h.purse.TryAcquire(more) {
			return h.refuse("the list is larger than it seemed, and the user's other large answers took the memory: " +
				"limit its size (limit=)")
		}
		h.own = own
	}
	if more := shared - h.shared; more > 0 {
		if !h.budget.all.TryAcquire(more) {
			return h.refuse("the list is larger than it seemed, and other large answers took the memory: limit its size (limit=)")
		}
		h.shared = shared
	}
	return nil
}

// refuse is the error of an answer for which there is no memory.
func (*holding) refuse(format string, args ...any) error {
	const retryAfter = 5 // seconds
	return apierrors.NewTooManyRequests("no memory is left for this answer: "+fmt.Sprintf(format, args...)+"; try again", retryAfter)
}

// holds tells whether the answer is a large one.
func (h *holding) holds() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.purse != nil
}

// release gives everything back, for good.
func (h *holding) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	if h.purse == nil {
		return
	}
	h.budget.all.Release(h.shared)
	h.purse.Release(h.own)
	h.budget.leave(h.user, h.purse)
	h.purse = nil
}

// answer is the answer to a list.
type answer struct {
	http.ResponseWriter
	store.Answer
	holding
	pace pace
	ctx  context.Context            //nolint:containedctx // that of the request, for what waits in Write
	turn atomic.Pointer[turns.Turn] // taken when the answer is a large one
}

// withAnswers bounds the memory of lists, and cuts off clients that do not take them.
// It is inside authorization, which knows the user. The server's own clients are not
// bounded.
func (c *chain) withAnswers(h http.Handler) http.Handler {
	if c.answers == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || !info.IsResourceRequest || info.Verb != "list" && info.Verb != "deletecollection" || loopback.From(r.Context()) {
			h.ServeHTTP(w, r)
			return
		}
		a := &answer{ResponseWriter: w, Answer: store.Answer{Form: formOf(r)}, holding: holding{budget: c.answers}, ctx: r.Context()}
		a.user = c.caller(r)
		a.Hold = func(ctx context.Context, bytes int64) error {
			if most := tooLarge * a.budget.total; bytes > most && info.Verb == "list" {
				return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the list would take some %d bytes of memory in this form, "+
					"and may take %d: ask for a part of it (limit=), or for JSON that is not indented", bytes, most))
			}
			turn := turns.From(ctx)
			a.turn.Store(turn)
			err := a.hold(ctx, bytes)
			if err == nil {
				turn.Take(ctx)
			}
			return err
		}
		a.pace.of(w, c.limits.Answers.Stall)
		defer func() {
			a.pace.watch.stop()
			a.release()
			c.weights.note(r, &a.Answer)
		}()
		h.ServeHTTP(responsewriter.WrapForHTTP1Or2(a), r.WithContext(store.WithAnswer(r.Context(), &a.Answer)))
	})
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Write implements http.ResponseWriter. Only a large answer is paced.
func (a *answer) Write(p []byte) (int, error) {
	if !a.holds() {
		return a.ResponseWriter.Write(p)
	}
	resume := a.turn.Load().Rest()
	n, err := a.pace.write(a.ResponseWriter, p)
	resume(a.ctx)
	return n, err
}

// formOf is how a list is written. Of several forms that the client takes it is the
// one that costs most.
func formOf(r *http.Request) store.Form {
	accept := strings.ToLower(r.Header.Get("Accept"))
	has := func(part string) bool { return strings.Contains(accept, part) }
	switch {
	case strings.Contains(r.URL.RawQuery, "pretty"), has("pretty"), isBrowser(r.UserAgent()):
		return store.Indented
	case has("table"), has("partialobjectmetadata"):
		return store.Rows
	case has("yaml"):
		return store.YAML
	}
	return store.Streamed
}

// isBrowser tells whether a client gets indented JSON because a person looks at it.
// https://github.com/kubernetes/apiserver/blob/v0.37.2/pkg/endpoints/handlers/negotiation/negotiate.go#L102
func isBrowser(agent string) bool {
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}
