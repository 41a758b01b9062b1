// Package wire has the lines that the process with the storage and the one with
// its clients exchange: JSON, a Request a line in and an Answer a line out.
package wire

import (
	"encoding/json"
	"io"
	"sync"

	"github.com/sailplane-dev/sailplane/test/faults/history"
)

// Kinds of requests beside those of history.
const (
	// Watch delivers everything from Request.Revision on, as answers with an Event.
	Watch history.Kind = "watch"
	// Room limits the size of every file that the process writes to
	// Request.Revision bytes; 0: no limit.
	Room history.Kind = "room"
)

// Request asks for one operation.
type Request struct {
	ID    int64        `json:"id"`
	Kind  history.Kind `json:"kind"`
	Key   string       `json:"key,omitempty"`
	Value string       `json:"value,omitempty"`
	// Revision is Op.Compare.
	Revision int64 `json:"revision,omitempty"`
}

// Answer is the answer to a request, or an event of a watch.
type Answer struct {
	ID int64 `json:"id"`
	// PID is the process that answers, in the first line it writes, when its
	// storage runs.
	PID int `json:"pid,omitempty"`
	// Event says that this is an event of the watch with this ID. A watch that
	// ends has an answer without one.
	Event bool `json:"event,omitempty"`
	// Op has what the answer says: outcome, revision, items, count, error.
	Op history.Op `json:"op"`
}

// Writer writes lines from many goroutines.
type Writer struct {
	mu sync.Mutex
	to *json.Encoder
}

// NewWriter makes a Writer on w.
func NewWriter(w io.Writer) *Writer { return &Writer{to: json.NewEncoder(w)} }

// Send writes a line.
func (w *Writer) Send(line any) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Encode(line)
}
