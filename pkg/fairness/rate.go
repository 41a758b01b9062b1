package fairness

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/lru"

	"github.com/sailplane-dev/sailplane/pkg/internal/bodies"
	"github.com/sailplane-dev/sailplane/pkg/internal/callers"
)

// users is how many users' rates are kept, and as many of namespaces. The one that was
// away longest is forgotten, so that users cannot fill the memory.
const users = 10_000

// rates are token buckets. Those of accounts and namespaces are different ones, so that
// who writes into a namespace takes nothing from its accounts elsewhere.
type rates struct {
	mu sync.Mutex // also of what is taken: from all buckets, or from none
	// users are by name, accounts by the namespace of service accounts, and namespaces by
	// that of written objects.
	users, accounts, namespaces *lru.Cache
}

func newRates() *rates {
	return &rates{users: lru.New(users), accounts: lru.New(users), namespaces: lru.New(users)}
}

// rating is how much may be taken, and how much at once.
type rating struct {
	perSecond float64
	burst     int
}

// times is the rating of many.
func (r rating) times(n int) rating {
	return rating{r.perSecond * float64(n), int(min(float64(r.burst)*float64(n), math.MaxInt32))}
}

// bucket is that of one user or namespace, with the limits it was last used with.
type bucket struct {
	*rate.Limiter
	rating
}

// share is what takes from a bucket.
type share struct {
	buckets *lru.Cache
	name    string
	rating
	// who is the owner of the bucket, in messages: "user %q".
	who string
	// times is how many times the limit of a user this is.
	times int
}

// sharesOf are the buckets of a caller, and of the namespace that is written to, if there is one.
func (r *rates) sharesOf(c *caller, namespace string, one rating, factor int) []share {
	shares := make([]share, 0, 3)
	if c != nil {
		shares = append(shares, share{r.users, c.name, one, "user %q", 1})
		if c.namespace != "" {
			shares = append(shares, share{
				r.accounts, c.namespace, one.times(factor), "the service accounts of namespace %q together", factor,
			})
		}
	}
	if namespace != "" {
		shares = append(shares, share{r.namespaces, namespace, one.times(factor), "writers into namespace %q together", factor})
	}
	return shares
}

// take takes from all buckets. If one has too little it takes from none, and returns that
// one, with how long it takes to fill. More than a burst is taken when the bucket is full.
func (r *rates) take(n int64, shares []share) (short *share, wait time.Duration) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if short, wait = lacking(now, n, shares); short == nil {
		for i := range shares {
			shares[i].bucket().AllowN(now, shares[i].atMost(n))
		}
	}
	return short, wait
}

// look is take that takes nothing.
func (r *rates) look(n int64, shares []share) (short *share, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return lacking(time.Now(), n, shares)
}

// lacking is the first bucket that has too little.
func lacking(now time.Time, n int64, shares []share) (short *share, wait time.Duration) {
	for i := range shares {
		s := &shares[i]
		if missing := float64(s.atMost(n)) - s.bucket().TokensAt(now); missing > 0 {
			return s, time.Duration(min(missing/s.perSecond, time.Hour.Seconds()) * float64(time.Second))
		}
	}
	return nil, 0
}

// atMost is n, or what may come at once.
func (s *share) atMost(n int64) int { return int(min(n, int64(s.burst))) }

// bucket is that of a user or namespace. One from before a change of the limits goes on with
// what is left in it.
func (s *share) bucket() *bucket {
	found, _ := s.buckets.Get(s.name)
	b, ok := found.(*bucket)
	if !ok {
		b = &bucket{rate.NewLimiter(rate.Limit(s.perSecond), s.burst), s.rating}
		s.buckets.Add(s.name, b)
	}
	if b.rating != s.rating {
		b.SetLimit(rate.Limit(s.perSecond))
		b.SetBurst(s.burst)
		b.rating = s.rating
	}
	return b
}

// subject names the owner of the bucket.
func (s *share) subject() string { return fmt.Sprintf(s.who, s.name) }

// multiple says that a limit is so many times that of a user, as for a namespace.
func multiple(times int) string {
	if times == 1 {
		return ""
	}
	return fmt.Sprintf(", %d times that for a namespace", times)
}

// requestRates limits requests per second.
type requestRates struct {
	now   current
	judge *judge
	rates *rates
}

// ofCallers is a middleware that counts the requests of users, and of service accounts. It
// also holds back the refusals of their bodies, when the request has no seat any more.
func (r *requestRates) ofCallers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		c := callerOf(req.Context())
		if c == nil {
			next.ServeHTTP(w, req)
			return
		}
		if e := r.refusal(req.Context(), c, ""); e != nil {
			r.judge.answer(w, req, e)
			return
		}
		if req.ContentLength == 0 {
			next.ServeHTTP(w, req)
			return
		}
		ctx, notice := bodies.WithNotice(req.Context())
		next.ServeHTTP(w, req.WithContext(ctx))
		if notice.Refused() {
			r.judge.pauses.Hold(ctx, callers.Of(c.name))
		}
	})
}

// ofNamespaces is a middleware that counts the writes into a namespace. It comes after
// authorization: who may not write takes nothing from those who may. It answers at once: the
// request has a seat of its priority level, which others wait for.
func (r *requestRates) ofNamespaces(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if callerOf(req.Context()) != nil {
			info, ok := request.RequestInfoFrom(req.Context())
			if ok && info.Namespace != "" && writes(info) {
				if e := r.refusal(req.Context(), nil, info.Namespace); e != nil {
					e.answer(w, req)
					return
				}
			}
		}
		next.ServeHTTP(w, req)
	})
}

// refusal counts a request, and says why it is refused if it is one too many.
func (r *requestRates) refusal(ctx context.Context, c *caller, namespace string) *exceeded {
	l := r.now(ctx)
	if l.RequestsPerSecond == 0 {
		return nil
	}
	short, wait := r.rates.take(1, r.rates.sharesOf(c, namespace, rating{l.RequestsPerSecond, l.burst()}, l.factor()))
	if short == nil {
		return nil
	}
	e := tooMany("RequestsPerSecond", callerOf(ctx).name, math.Ceil(wait.Seconds()), "%v with Burst %d%s: more come from %s",
		l.RequestsPerSecond, l.burst(), multiple(short.times), short.subject())
	if !r.judge.refuses(ctx, l, e) {
		return nil
	}
	return e
}

// writes tells whether a request changes objects.
func writes(info *request.RequestInfo) bool {
	switch info.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return info.IsResourceRequest
	}
	return false
}
