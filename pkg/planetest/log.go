package planetest

import (
	"bytes"
	"log/slog"
	"sync"
)

// journal is a test's log.
type journal struct {
	mu     sync.Mutex
	logf   func(format string, args ...any)
	closed bool
}

// errors is the logger of a server: the errors are written to the journal, as long
// as the test runs, and the rest is left out.
func (j *journal) errors() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelError}))
}

// Write implements io.Writer, for one line at a time.
func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.closed {
		j.logf("plane: %s", bytes.TrimSuffix(line, []byte("\n")))
	}
	return len(line), nil
}

// close stops the writing: a test that ended has no log.
func (j *journal) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = true
}
