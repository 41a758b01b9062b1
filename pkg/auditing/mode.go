package auditing

import (
	"fmt"
	"time"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/plugin/pkg/audit/buffered"
)

// Mode says whether requests wait until their events are delivered.
type Mode string

const (
	// Batch delivers events later, several at once. A buffer holds 10,000: one user, or the
	// service accounts of one namespace, may have as many places as are free, half of them
	// alone, and who did not log in a tenth together. Events beyond that are lost, and
	// counted in a metric.
	Batch Mode = "batch"
	// Blocking delivers before a request is answered. A request whose event
	// cannot be delivered is answered all the same.
	Blocking Mode = "blocking"
	// BlockingStrict is Blocking, and refuses a request whose event of the stage
	// RequestReceived cannot be delivered. It needs a policy that records that
	// stage; the default one does not. An event that is over a budget of a Log cannot be
	// delivered: its request is refused with 500 until there is room, and what would
	// not be recorded is not done.
	BlockingStrict Mode = "blocking-strict"
)

// bufferSize is how many events Batch holds.
const bufferSize = 10000

// check refuses unknown modes.
func (m Mode) check() error {
	switch m {
	case Batch, Blocking, BlockingStrict:
		return nil
	}
	return fmt.Errorf("mode %q: want %s, %s or %s", m, Batch, Blocking, BlockingStrict)
}

// wrap delivers to a back end in this mode. Skip counts what gets no place in the buffer.
func (m Mode) wrap(
	b audit.Backend, most bound, config buffered.BatchConfig, skip func(*auditinternal.Event, reason),
) audit.Backend {
	switch m {
	case Batch:
		s := newShares(bufferSize, skip)
		config.BufferSize = bufferSize
		return cutting{entrance{buffered.NewBackend(exit{b, s}, config), s}, most}
	case Blocking:
		return lenient{b}
	default:
		return b
	}
}

// lenient hides the errors of a back end, which reported them, from the request.
type lenient struct{ audit.Backend }

// ProcessEvents implements audit.Sink.
func (l lenient) ProcessEvents(events ...*auditinternal.Event) bool {
	l.Backend.ProcessEvents(events...)
	return true
}

// positive is the value, or what empty stands for.
func positive[T int | time.Duration](value, empty T, field string) (T, error) {
	switch {
	case value < 0:
		return 0, fmt.Errorf("%s is %v: want more than 0", field, value)
	case value == 0:
		return empty, nil
	}
	return value, nil
}
