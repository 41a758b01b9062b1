package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sailplane-dev/sailplane/test/faults/verify"
)

// line is a round that was run.
type line struct {
	Engine     string             `json:"engine"`
	Fault      string             `json:"fault"`
	Seed       uint64             `json:"seed"`
	Time       time.Time          `json:"time"` // when it ended
	Seconds    float64            `json:"seconds"`
	Operations int                `json:"operations"`
	Faults     int                `json:"faults"`
	Unanswered int                `json:"unanswered"`
	Lost       int                `json:"lost,omitempty"`
	Illegal    []verify.Violation `json:"illegal,omitempty"`
	Error      string             `json:"error,omitempty"`
	History    string             `json:"history,omitempty"`
}

// failed says whether something is wrong with the round.
func (l line) failed() bool { return l.Error != "" || len(l.Illegal) > 0 }

func (l line) String() string {
	texts := []string{fmt.Sprintf("FAILED %s/%s seed %d, history %s", l.Engine, l.Fault, l.Seed, l.History)}
	for _, v := range l.Illegal {
		texts = append(texts, "  "+v.String())
	}
	if l.Error != "" {
		texts = append(texts, "  "+l.Error)
	}
	return strings.Join(texts, "\n")
}

// record is the file of all rounds that were run.
type record struct {
	mu   sync.Mutex
	file *os.File
	done []line
}

// openRecord opens a record and reads what is done. A last line that was cut
// off is a round that was not done.
func openRecord(path string) (*record, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(f)
	whole := content[:bytes.LastIndexByte(content, '\n')+1]
	r := &record{file: f}
	lines := json.NewDecoder(bytes.NewReader(whole))
	for err == nil {
		var l line
		if e := lines.Decode(&l); errors.Is(e, io.EOF) {
			break
		} else if e != nil {
			err = fmt.Errorf("%s: line %d: %w", path, len(r.done)+1, e)
			break
		}
		r.done = append(r.done, l)
	}
	if err == nil {
		err = f.Truncate(int64(len(whole)))
	}
	if err == nil {
		_, err = f.Seek(int64(len(whole)), io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return r, nil
}

// add writes a round, in one piece.
func (r *record) add(l line) error {
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = append(r.done, l)
	_, err = r.file.Write(append(text, '\n'))
	return err
}

func (r *record) failures() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, l := range r.done {
		if l.failed() {
			n++
		}
	}
	return n
}

func (r *record) close() error { return r.file.Close() }

// table prints a row for each engine and fault, and returns whether any round failed.
func table(w io.Writer, done []line) (failed bool) {
	type row struct{ rounds, illegal, errors, faults, operations int }
	rows := map[task]*row{}
	var order []task
	for _, l := range done {
		t := task{l.Engine, l.Fault}
		if rows[t] == nil {
			rows[t] = &row{}
			order = append(order, t)
		}
		each := rows[t]
		each.rounds++
		each.faults += l.Faults
		each.operations += l.Operations
		switch {
		case len(l.Illegal) > 0:
			each.illegal++
		case l.Error != "":
			each.errors++
		}
		failed = failed || l.failed()
	}
	slices.SortFunc(order, func(a, b task) int { return strings.Compare(a.Engine+" "+a.Fault, b.Engine+" "+b.Fault) })
	fmt.Fprintln(w, "| engine | fault | rounds | faults | lines of history | illegal | other errors |")
	fmt.Fprintln(w, "|---|---|--:|--:|--:|--:|--:|")
	for _, t := range order {
		each := rows[t]
		fmt.Fprintf(w, "| %s | %s | %d | %d | %d | %d | %d |\n",
			t.Engine, t.Fault, each.rounds, each.faults, each.operations, each.illegal, each.errors)
	}
	return failed
}
