package controlplane

import (
	"net/http"
	"sync"
	"sync/atomic"

	"k8s.io/apiserver/pkg/endpoints/request"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"github.com/sailplane-dev/sailplane/pkg/internal/store"
)

// weights knows which lists are large, by their paths. Upstream estimates the work of
// a list from the number and the average size of all objects of its resource, which it
// asks the storage for each minute; a list of one small namespace then costs as much
// as that of all.
type weights struct {
	bytes sync.Map // of int64, by path
	count atomic.Int64
}

const (
	// bytesPerSeat is upstream's.
	// https://github.com/kubernetes/apiserver/blob/v0.37.2/pkg/util/flowcontrol/request/list_work_estimator.go#L33
	bytesPerSeat = 100_000
	// streamedBytes is as how large a list counts that is written object by object.
	streamedBytes = 10 * bytesPerSeat
	// maxWeights is how many large lists are known.
	maxWeights = 10_000
)

// note remembers how large a list was.
func (w *weights) note(r *http.Request, a *store.Answer) {
	bytes := a.Content.Load()
	if a.Form == store.Streamed {
		bytes = min(bytes, streamedBytes)
	}
	path, known := r.URL.Path, w.known(r.URL.Path)
	switch {
	case bytes == known, bytes < known && r.URL.RawQuery != "": // a part of it
		return
	case bytes == 0:
		if _, found := w.bytes.LoadAndDelete(path); found {
			w.count.Add(-1)
		}
		return
	case w.count.Load() >= maxWeights:
		w.bytes.Clear()
		w.count.Store(0)
	}
	if _, found := w.bytes.Swap(path, bytes); !found {
		w.count.Add(1)
	}
}

// known is how large the list at a path was.
func (w *weights) known(path string) int64 {
	bytes, _ := w.bytes.Load(path)
	known, _ := bytes.(int64)
	return known
}

// estimate returns how many seats of its priority level a request takes: as upstream,
// and for a list that was large by its bytes.
func (w *weights) estimate(
	upstream flowcontrolrequest.WorkEstimatorFunc, most uint64, maxSeats func(string) uint64,
) flowcontrolrequest.WorkEstimatorFunc {
	return func(r *http.Request, schema, level string) flowcontrolrequest.WorkEstimate {
		e := upstream(r, schema, level)
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || info.Verb != "list" && info.Verb != "deletecollection" {
			return e
		}
		if bytes := w.known(r.URL.Path); bytes > 0 {
			limit := most
			if m := maxSeats(level); m > 0 {
				limit = min(limit, m)
			}
			e.InitialSeats = max(e.InitialSeats, min(uint64(bytes/bytesPerSeat), limit)) //nolint:gosec // not negative
		}
		return e
	}
}
