package fairness

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/feed"
	"github.com/sailplane-dev/sailplane/pkg/internal/loopback"
)

// written limits what is stored, by its size.
type written struct {
	now   current
	judge *judge
	bytes *rates
	feed  atomic.Pointer[feed.Feed] // nil until it is complete
	made  *creators                 // nil: users never have a limit for what is stored

	mu    sync.Mutex
	open  map[holder]int64 // by how much the writes that run enlarge what it has
	since int64            // bytes admitted since the feed was asked to catch up
}

const (
	// slack is how far below a limit of what is stored, and after how many bytes, the
	// feed is asked to catch up: otherwise the few milliseconds that it is behind do not
	// matter.
	slack = 16 << 20
	// grace is by how much a write may enlarge an object that is being deleted.
	grace = 1 << 10
)

// rating of bytes.
func (l Limits) rating() rating {
	if l.WriteBurstBytes > 0 {
		return rating{float64(l.WriteBytesPerSecond), l.WriteBurstBytes}
	}
	return rating{float64(l.WriteBytesPerSecond), l.WriteBytesPerSecond}
}

// early is a middleware that refuses the request of a user whose bucket is empty, before its
// body is read.
func (w *written) early(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		c := callerOf(req.Context())
		info, ok := request.RequestInfoFrom(req.Context())
		if c == nil || !ok || !writes(info) || info.Verb == "delete" || info.Verb == "deletecollection" {
			next.ServeHTTP(rw, req)
			return
		}
		l := w.now(req.Context())
		if l.WriteBytesPerSecond > 0 && l.Mode != Warn {
			// What is stored may be smaller than the body.
			if e := w.rate(w.bytes.look, l, max(req.ContentLength/2, 1), c, ""); e != nil && w.judge.refuses(req.Context(), l, e) {
				w.judge.answer(rw, req, e)
				return
			}
		}
		next.ServeHTTP(rw, req)
	})
}

// guard is a controlplane.WriteGuard.
func (w *written) guard(ctx context.Context, p controlplane.Write) (done func(bool), err error) {
	if _, ok := request.UserFrom(ctx); !ok || loopback.From(ctx) {
		return nil, nil
	}
	l, c := w.now(ctx), callerOf(ctx)
	who := ""
	if c != nil {
		who = c.name
	}
	if size := p.Bytes - int64(len(p.Key)); l.ObjectBytes > 0 && size > int64(l.ObjectBytes) {
		if err := w.tooLarge(ctx, l, who, p); err != nil {
			return nil, err
		}
	}
	if c == nil {
		return nil, nil
	}
	if w.made != nil || l.StoredBytesPerNamespace > 0 {
		if done, err = w.room(ctx, l, c, p); err != nil {
			return nil, err
		}
	}
	if l.WriteBytesPerSecond > 0 {
		if e := w.rate(w.bytes.take, l, p.Bytes, c, p.Namespace); e != nil && w.judge.refuses(ctx, l, e) {
			if done != nil {
				done(false)
			}
			return nil, e.error
		}
	}
	return done, nil
}

// rate looks at the buckets of a caller and a namespace, or takes from them.
func (w *written) rate(
	from func(int64, []share) (*share, time.Duration), l Limits, n int64, c *caller, namespace string,
) *exceeded {
	short, wait := from(n, w.bytes.sharesOf(c, namespace, l.rating(), l.factor()))
	if short == nil {
		return nil
	}
	return tooMany("WriteBytesPerSecond", c.name, math.Ceil(wait.Seconds()), "%d with WriteBurstBytes %d%s: more come from %s",
		l.WriteBytesPerSecond, l.rating().burst, multiple(short.times), short.subject())
}

// before is the object that a write replaces, as far as the feed is; nil for a new one.
func (w *written) before(p controlplane.Write) (o *feed.Object, known bool) {
	if p.Replaces == 0 {
		return nil, true
	}
	if feed := w.feed.Load(); feed != nil {
		o = feed.At(p.Key)
	}
	return o, o != nil && o.Revision == p.Replaces
}

// adds is how many bytes a write adds to an object, or to none.
func adds(p controlplane.Write, before *feed.Object) int64 {
	if before == nil {
		return p.Bytes
	}
	return max(p.Bytes-before.Bytes(), 0)
}

// tooLarge refuses an object with more than ObjectBytes, unless it was as large before: it can still lose its
// finalizers.
func (w *written) tooLarge(ctx context.Context, l Limits, who string, p controlplane.Write) error {
	if feed := w.feed.Load(); feed != nil && p.Replaces != 0 {
		before, err := feed.Replaced(ctx, p.Key, p.Replaces)
		if err != nil {
			return fmt.Errorf("measure %s: %w", p.Resource, err)
		}
		if adds(p, before) == 0 {
			return nil
		}
	}
	e := &exceeded{"ObjectBytes", who, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
		"limit ObjectBytes is %d: %s %q has %d bytes as it is stored", l.ObjectBytes, p.Resource, p.Name, p.Bytes-int64(len(p.Key))))}
	if w.judge.refuses(ctx, l, e) {
		return e.error
	}
	return nil
}
