package auditing

import (
	"sync"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
)

// strangerPlaces is the part of the buffer that strangers may have together: a tenth.
const strangerPlaces = 10

// shares decides who may have how many places of the buffer that all callers share, before
// an event is in it: a caller as many as are free, as with the bytes of a log (see
// [budget]). So one alone has half of the buffer, and something is left for those who
// come later. Strangers are one caller.
type shares struct {
	places int
	// skip counts an event that gets no place.
	skip func(*auditinternal.Event, reason)

	mu   sync.Mutex
	held map[string]int // by holder; none has 0
	all  int
}

func newShares(places int, skip func(*auditinternal.Event, reason)) *shares {
	return &shares{places: places, skip: skip, held: map[string]int{}}
}

// holderOf is whose places an event has: a caller, or empty for strangers.
func holderOf(e *auditinternal.Event) string {
	if isStranger(e) {
		return ""
	}
	return callerOf(e)
}

// take takes a place for an event, or says why there is none.
func (s *shares) take(e *auditinternal.Event) reason {
	holder, why, most := holderOf(e), caller, s.places
	if holder == "" {
		why, most = stranger, s.places/strangerPlaces
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if has := s.held[holder]; has >= min(most, s.places-s.all) {
		return why
	}
	s.held[holder]++
	s.all++
	return admitted
}

// free gives the place of an event back.
func (s *shares) free(e *auditinternal.Event) {
	holder := holderOf(e)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[holder]--; s.held[holder] <= 0 {
		delete(s.held, holder)
	}
	s.all--
}

// entrance is the buffer with shares. It has no more events than places, so none is lost
// because it is full.
type entrance struct {
	audit.Backend
	shares *shares
}

// ProcessEvents implements audit.Sink. Requests do not wait for the buffer, and do not learn
// what becomes of their events.
func (b entrance) ProcessEvents(events ...*auditinternal.Event) bool {
	for _, e := range events {
		if why := b.shares.take(e); why != admitted {
			b.shares.skip(e, why)
			continue
		}
		b.Backend.ProcessEvents(e)
	}
	return true
}

// exit is what the buffer delivers to.
type exit struct {
	audit.Backend
	shares *shares
}

// ProcessEvents implements audit.Sink.
func (b exit) ProcessEvents(events ...*auditinternal.Event) bool {
	for _, e := range events {
		b.shares.free(e)
	}
	return b.Backend.ProcessEvents(events...)
}
