package auditing

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
)

const (
	// The annotations of a summary.
	unwrittenNote      = "audit.sailplane.dev/not-written"
	unwrittenBytesNote = "audit.sailplane.dev/not-written-bytes"
	strangersNote      = "audit.sailplane.dev/strangers"
	callersNote        = "audit.sailplane.dev/callers"

	// addressesCounted and callersCounted bound the memory of a tally, and
	// callersNamed its line.
	addressesCounted = 1024
	callersCounted   = 1024
	callersNamed     = 10
)

// tally counts events that were not written.
type tally struct {
	since         time.Time
	events, bytes int64
	strangers     int64
	addresses     map[string]bool  // of strangers
	callers       map[string]int64 // events of each
	others        int64            // events of callers that are not counted one by one
}

func (t *tally) add(e *auditinternal.Event, n int, why reason) {
	if t.events == 0 {
		*t = tally{since: time.Now(), addresses: map[string]bool{}, callers: map[string]int64{}}
	}
	t.events++
	t.bytes += int64(n)
	if why == stranger {
		t.strangers++
		// The last address is the one that the connection has.
		if n := len(e.SourceIPs); n > 0 && len(t.addresses) < addressesCounted {
			t.addresses[strings.Clone(e.SourceIPs[n-1])] = true
		}
		return
	}
	name := callerOf(e)
	if _, known := t.callers[name]; !known && len(t.callers) >= callersCounted {
		t.others++
		return
	}
	t.callers[name]++
}

// event is the summary: verb "summarize" of system:apiserver, received when the first
// of the events would have been written.
func (t *tally) event(now time.Time) *auditinternal.Event {
	notes := map[string]string{
		unwrittenNote: strconv.FormatInt(t.events, 10), unwrittenBytesNote: strconv.FormatInt(t.bytes, 10),
	}
	if t.strangers > 0 {
		most := ""
		if len(t.addresses) == addressesCounted {
			most = "or more "
		}
		notes[strangersNote] = fmt.Sprintf("%d from %d %saddresses", t.strangers, len(t.addresses), most)
	}
	if named := t.named(); named != "" {
		notes[callersNote] = named
	}
	e := own(now, "summarize", notes)
	e.RequestReceivedTimestamp = metav1.NewMicroTime(t.since)
	return e
}

// named names the callers with the most events.
func (t *tally) named() string {
	names := slices.SortedFunc(maps.Keys(t.callers), func(a, b string) int {
		return cmp.Or(cmp.Compare(t.callers[b], t.callers[a]), strings.Compare(a, b))
	})
	var all []string
	others, events := 0, t.others
	for i, name := range names {
		if i < callersNamed {
			all = append(all, fmt.Sprintf("%s %d", strconv.Quote(name), t.callers[name]))
			continue
		}
		others++
		events += t.callers[name]
	}
	switch {
	case t.others > 0:
		all = append(all, fmt.Sprintf("more than %d others %d", others, events))
	case others > 0:
		all = append(all, fmt.Sprintf("%d others %d", others, events))
	}
	return strings.Join(all, ", ")
}
