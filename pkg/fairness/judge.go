package fairness

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"

	"github.com/sailplane-dev/sailplane/pkg/internal/callers"
	"github.com/sailplane-dev/sailplane/pkg/internal/metrics"
	"github.com/sailplane-dev/sailplane/pkg/internal/pauses"
)

// judge decides what happens to requests over a limit.
type judge struct {
	mu sync.Mutex
	// told is when a caller was last reported for a limit.
	told   *lru.Cache
	pauses *pauses.Pauses
}

// heldRefusals is how many refusals are held back for a user, or the service accounts of a
// namespace, and allHeldRefusals for all: each holds memory.
const heldRefusals, allHeldRefusals = 64, 1024

// toldEvery is the pause between two reports of a caller and a limit.
const toldEvery = time.Minute

type report struct{ who, limit string }

func newJudge() *judge {
	return &judge{told: lru.New(users), pauses: pauses.New(heldRefusals, allHeldRefusals)}
}

// refuses counts a request over a limit and tells whether it is refused. If not, it
// logs why it would have been.
func (j *judge) refuses(ctx context.Context, l Limits, e *exceeded) bool {
	mode := Enforce
	if l.Mode == Warn {
		mode = Warn
	}
	metrics.OverLimit(e.limit, string(mode))
	if mode == Enforce {
		return true
	}
	if j.tell(report{e.who, e.limit}, time.Now()) {
		// logr knows no warnings, and information of libraries is left out by default.
		slog.New(logr.ToSlogHandler(klog.FromContext(ctx))).WarnContext(ctx, "A request is over a limit, and would be refused",
			"limit", e.limit, "caller", e.who, "cause", e.Error())
	}
	return false
}

// tell tells whether it is time for a report.
func (j *judge) tell(r report, now time.Time) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if last, ok := j.told.Get(r); ok && now.Sub(last.(time.Time)) < toldEvery { //nolint:forcetypeassert // only this writes
		return false
	}
	j.told.Add(r, now)
	return true
}

// exceeded is the refusal of a request.
type exceeded struct {
	limit, who string
	error
}

// answer refuses a request after a pause.
func (j *judge) answer(w http.ResponseWriter, req *http.Request, e *exceeded) {
	j.pauses.Hold(req.Context(), callers.Of(e.who))
	e.answer(w, req)
}

// answer refuses a request as the API does.
func (e *exceeded) answer(w http.ResponseWriter, req *http.Request) {
	responsewriters.ErrorNegotiated(e.error, scheme.Codecs, schema.GroupVersion{Version: "v1"}, w, req)
}

// tooMany is a 429 that says when to come back, within an hour. The message begins with the
// value of the limit.
func tooMany(limit, who string, seconds float64, message string, args ...any) *exceeded {
	text := fmt.Sprintf("limit "+limit+" is "+message, args...)
	return &exceeded{limit, who, apierrors.NewTooManyRequests(text, int(min(max(seconds, 1), time.Hour.Seconds())))}
}
