package auditing

import (
	"math"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/lru"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/callers"
)

const (
	// callersKnown is how many callers are remembered; the one that was not heard of
	// for the longest time is forgotten first.
	callersKnown = 4096
	// floorShare of a log is what each caller may have, however full it is.
	floorShare = 1000
	// strangerShare of a log is what strangers may add in a day.
	strangerShare = 100
	// assumedSize is that of a log without a bound.
	assumedSize = 1 << 30

	day = 24 * time.Hour
)

// newBudget is that of a log; room is how much there is in its files.
func newBudget(l Log, room func(keep time.Duration, now time.Time) int64) *budget {
	total := float64(l.MaxSize) * float64(l.MaxBackups+1)
	bounded := l.MaxSize > 0 && l.MaxBackups > 0
	if !bounded {
		total = assumedSize
	}
	b := &budget{callers: lru.New(callersKnown)}
	if l.StrangerBytes != controlplane.Unlimited {
		perDay := float64(l.StrangerBytes)
		if perDay == 0 {
			perDay = total / strangerShare
		}
		perDay = max(perDay, float64(bound(l.MaxEvent).plain()))
		b.strangers = rate.NewLimiter(rate.Limit(perDay/day.Seconds()), int(perDay))
	}
	if l.Keep > 0 && bounded && room != nil {
		b.keep = l.Keep
		if l.MaxAge > 0 {
			b.keep = min(b.keep, l.MaxAge)
		}
		b.room = func(now time.Time) int64 { return room(b.keep, now) }
		b.floor = total / floorShare
	}
	return b
}

// budget decides who may add how much to a log.
//
// Strangers, together, have a bucket that fills in a day. What others may add depends
// on the room that there is before the log would lose an event younger than keep: as
// much as a caller has in the log there has to be free. So one alone may have half of
// it, two a third each, and something is left for those who come later: the dynamic
// thresholds of Choudhury and Hahne, https://doi.org/10.1109/90.664262, with factor 1.
type budget struct {
	strangers *rate.Limiter // nil: no bound
	// room is how many bytes there are; nil: no promise is to be kept.
	room  func(now time.Time) int64
	keep  time.Duration
	floor float64

	mu      sync.Mutex
	callers *lru.Cache
}

// usage is what a caller has in the log, in bytes. It decays: what was written keep
// ago counts for a third, and twice as long ago for an eighth.
type usage struct {
	bytes float64
	at    time.Time
}

// reason is why an event is not written, as the metric names it.
type reason string

const (
	admitted reason = ""
	stranger reason = "stranger"
	caller   reason = "caller"
)

// admits decides on an event of n bytes.
func (b *budget) admits(e *auditinternal.Event, n int, now time.Time) reason {
	if isStranger(e) {
		if b.strangers != nil && !b.strangers.AllowN(now, n) {
			return stranger
		}
		return admitted
	}
	if b.room == nil {
		return admitted
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	u, who := &usage{at: now}, callerOf(e)
	if known, ok := b.callers.Get(who); ok {
		u, _ = known.(*usage)
	}
	u.bytes *= math.Exp(-max(0, now.Sub(u.at).Seconds()) / b.keep.Seconds())
	u.at = now
	if after := u.bytes + float64(n); after > b.floor && after > float64(b.room(now)) {
		return caller
	}
	u.bytes += float64(n)
	b.callers.Add(who, u)
	return admitted
}

// isStranger tells whether authentication failed, or whoever came without
// credentials was refused.
func isStranger(e *auditinternal.Event) bool {
	switch e.User.Username {
	case "":
		return true
	case user.Anonymous:
		return e.ResponseStatus != nil && (e.ResponseStatus.Code == 401 || e.ResponseStatus.Code == 403)
	}
	return false
}

// callerOf is whose budget an event is of, without the event.
func callerOf(e *auditinternal.Event) string {
	return strings.Clone(short(callers.Of(e.User.Username), 256))
}
