package planetest

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"
)

// sink writes the errors that a server logs to the log of its test, as long as
// the test runs. The rest is left out.
type sink struct {
	*journal
	name   string
	values []any
}

// journal is a test's log.
type journal struct {
	mu     sync.Mutex
	logf   func(format string, args ...any)
	closed bool
}

// close has nothing more written: a test that ended has no log.
func (j *journal) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = true
}

var _ logr.LogSink = sink{}

// Init implements logr.LogSink.
func (sink) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink.
func (sink) Enabled(int) bool { return false }

// Info implements logr.LogSink.
func (sink) Info(int, string, ...any) {}

// Error implements logr.LogSink.
func (s sink) Error(err error, msg string, keysAndValues ...any) {
	var b strings.Builder
	fmt.Fprintf(&b, "plane: %s%s: %v", s.name, msg, err)
	for values := slices.Concat(s.values, keysAndValues); len(values) > 1; values = values[2:] {
		fmt.Fprintf(&b, " %v=%v", values[0], values[1])
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.logf("%s", b.String())
	}
}

// WithValues implements logr.LogSink.
func (s sink) WithValues(keysAndValues ...any) logr.LogSink {
	s.values = slices.Concat(s.values, keysAndValues)
	return s
}

// WithName implements logr.LogSink.
func (s sink) WithName(name string) logr.LogSink {
	s.name += name + ": "
	return s
}
