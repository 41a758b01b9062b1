// Package verify decides whether a history is one that a correct storage can
// have: a linearizable map of keys with revisions, whose watch delivers every
// write once. It knows nothing but the history.
package verify

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sailplane-dev/sailplane/test/faults/history"
)

// limit is how long the search for an order of the operations may take, and
// shortLimit how long where another check found something.
const limit, shortLimit = time.Minute, 5 * time.Second

// The checks, by what each finds. The search of Linearizable is complete; the
// others are quick and say more precisely what is wrong.
const (
	// Linearizable: there is no order of the operations, within their times, in
	// which each has the answer it had.
	Linearizable = "linearizable"
	// Unique: two writes have the same revision, or one write has two.
	Unique = "unique"
	// Order: a write has a lower revision than one that was acknowledged before it began.
	Order = "order"
	// Back: a client was told a lower revision than before.
	Back = "back"
	// Stale: a read is of a revision before a write that was acknowledged before the read began.
	Stale = "stale"
	// Snapshot: two reads of one prefix at one revision differ.
	Snapshot = "snapshot"
	// Lost: a read does not show what was acknowledged before the read began.
	Lost = "lost"
	// Gone: a read does not show what another showed before.
	Gone = "gone"
	// Torn: a read shows another state than that of its revision.
	Torn = "torn"
	// Watch: the watch left out a write, delivered one twice, out of order, or one that never was.
	Watch = "watch"
)

// Violation is a check that a history did not pass.
type Violation struct {
	Check string `json:"check"`
	Text  string `json:"text"`  // of the first finding
	Count int    `json:"count"` // of findings
}

func (v Violation) String() string {
	if v.Count > 1 {
		return fmt.Sprintf("%s: %s (and %d more)", v.Check, v.Text, v.Count-1)
	}
	return v.Check + ": " + v.Text
}

// History returns what is wrong with a history: nothing, if it is legal.
func History(h *history.History) []Violation {
	found, _ := check(h, false)
	return found
}

// Picture writes a page of HTML that shows the operations in time, the longest
// order found and where it ends.
func Picture(h *history.History, w io.Writer) error {
	_, info := check(h, true)
	return porcupine.Visualize(model(), *info, w)
}

func check(h *history.History, picture bool) ([]Violation, *porcupine.LinearizationInfo) {
	f := &findings{}
	ops := learn(h.Ops)
	unique(f, ops)
	order(f, ops)
	back(f, h.Ops)
	stale(f, ops)
	snapshot(f, ops)
	content(f, h.Ops)
	if h.Round.Watched {
		watch(f, h.Ops)
	}
	info := search(f, ops, picture)
	return f.all, info
}

// search looks for an order of the operations. Where it is known that
// something is wrong it does not look for long.
func search(f *findings, ops []history.Op, picture bool) (info *porcupine.LinearizationInfo) {
	enough := limit
	if len(f.all) > 0 {
		enough = shortLimit
	}
	ops = relevant(ops)
	var result porcupine.CheckResult
	if picture {
		var i porcupine.LinearizationInfo
		result, i = porcupine.CheckOperationsVerbose(model(), operations(ops), enough)
		info = &i
	} else {
		result = porcupine.CheckOperationsTimeout(model(), operations(ops), enough)
	}
	switch result {
	case porcupine.Illegal:
		f.add(Linearizable, "no order of the %d operations explains their answers", len(ops))
	case porcupine.Unknown:
		f.add(Linearizable, "not decided within %v", enough)
	}
	return info
}

// findings collects what checks find, one violation for each check.
type findings struct{ all []Violation }

func (f *findings) add(check, format string, args ...any) {
	i := slices.IndexFunc(f.all, func(v Violation) bool { return v.Check == check })
	if i >= 0 {
		f.all[i].Count++
		return
	}
	f.all = append(f.all, Violation{Check: check, Text: fmt.Sprintf(format, args...), Count: 1})
}

// WritePicture writes a Picture to a file.
func WritePicture(h *history.History, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(Picture(h, f), f.Close())
}
