// Package history has what clients did to a storage and what they were told,
// and the files that keep it: one JSON object a line.
package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Kind is what a client did, or what a watch delivered.
type Kind string

// The operations of clients, and the two events of the watch.
const (
	// Get reads a key.
	Get Kind = "get"
	// List reads every key of a prefix.
	List Kind = "list"
	// ListAt is List at an earlier revision.
	ListAt Kind = "listAt"
	// Count counts the keys of a prefix.
	Count Kind = "count"
	// Create writes a key that must not exist.
	Create Kind = "create"
	// Update writes a key that must have the revision Op.Compare.
	Update Kind = "update"
	// Delete removes a key that must have the revision Op.Compare.
	Delete Kind = "delete"
	// Put is an event of the watch: a key was created or updated.
	Put Kind = "event put"
	// Removed is an event of the watch: a key was deleted.
	Removed Kind = "event delete"
)

// Outcome is what a client knows of its operation.
type Outcome string

// What a client may know.
const (
	// OK: a read has its answer, or a write happened.
	OK Outcome = "ok"
	// Refused: the compare of a write failed, and nothing happened.
	Refused Outcome = "refused"
	// Unknown: a write was not answered. It may happen at any later time, or never.
	Unknown Outcome = "unknown"
	// Failed: a read was not answered.
	Failed Outcome = "failed"
)

// Item is a key as a read showed it. Every write has another value.
type Item struct {
	Key      string `json:"key"`
	Value    string `json:"value"`
	Revision int64  `json:"revision"` // of the last write to the key
}

// Op is one operation of a client, or one event of the watch, whose Call and
// Return are when it arrived.
type Op struct {
	Client int    `json:"client"`
	Kind   Kind   `json:"kind"`
	Key    string `json:"key"` // a prefix, with its slash, where a prefix is read
	Value  string `json:"value,omitempty"`
	// Compare is the revision that the key must have, or, for ListAt, the
	// revision that is read.
	Compare int64 `json:"compare,omitempty"`

	// Call and Return are nanoseconds since the round began.
	Call   int64 `json:"call"`
	Return int64 `json:"return"`

	Outcome Outcome `json:"outcome,omitempty"`
	// Revision is that of the answer: of a write that happened its own, of
	// everything else how far the storage was.
	Revision int64 `json:"revision,omitempty"`
	// Items are what was read; of an Update or Delete that was refused what is
	// there in place of what was expected.
	Items []Item `json:"items,omitempty"`
	Count int64  `json:"count,omitempty"`
	Error string `json:"error,omitempty"`
}

// IsWrite says whether the operation changes a key.
func (o *Op) IsWrite() bool { return o.Kind == Create || o.Kind == Update || o.Kind == Delete }

// IsEvent says whether it is an event of the watch.
func (o *Op) IsEvent() bool { return o.Kind == Put || o.Kind == Removed }

// Prefix is the prefix that the key belongs to, with its slash.
func (o *Op) Prefix() string { return o.Key[:strings.LastIndex(o.Key, "/")+1] }

// Covers says whether the operation reads or writes the key.
func (o *Op) Covers(key string) bool {
	return o.Key == key || strings.HasSuffix(o.Key, "/") && strings.HasPrefix(key, o.Key)
}

// Round says where a history comes from. It is the first line of a file.
type Round struct {
	Engine string `json:"engine"`
	Fault  string `json:"fault"`
	Seed   uint64 `json:"seed"`
	// Watched: a watch saw the round from its begin to its end.
	Watched bool `json:"watched"`
}

// History is a round and what happened in it.
type History struct {
	Round Round
	Ops   []Op
}

// head is the first line of a file.
type head struct {
	Round *Round `json:"round"`
}

// Read reads a history file.
func Read(path string) (*History, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := json.NewDecoder(bufio.NewReaderSize(f, 1<<20))
	var first head
	if err := lines.Decode(&first); err != nil || first.Round == nil {
		return nil, fmt.Errorf("%s: the first line does not name a round: %w", path, errors.Join(err))
	}
	h := &History{Round: *first.Round}
	for {
		var op Op
		if err := lines.Decode(&op); errors.Is(err, io.EOF) {
			return h, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", path, len(h.Ops)+2, err)
		}
		if !strings.Contains(op.Key, "/") {
			return nil, fmt.Errorf("%s: line %d: key %q has no prefix", path, len(h.Ops)+2, op.Key)
		}
		h.Ops = append(h.Ops, op)
	}
}

// Write writes a history file.
func Write(path string, h *History) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	buffer := bufio.NewWriterSize(f, 1<<20)
	lines := json.NewEncoder(buffer)
	err = lines.Encode(head{&h.Round})
	for i := range h.Ops {
		err = errors.Join(err, lines.Encode(&h.Ops[i]))
	}
	return errors.Join(err, buffer.Flush(), f.Close())
}
