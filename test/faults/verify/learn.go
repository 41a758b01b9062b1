package verify

import (
	"math"
	"slices"

	"github.com/sailplane-dev/sailplane/test/faults/history"
)

// learn returns the operations with what others learned of unanswered writes:
// one whose value was read did happen, at the revision that was read, before
// the first read that showed it returned. Events and reads without an answer
// say nothing here.
func learn(all []history.Op) []history.Op {
	type sight struct{ revision, before int64 }
	seen := map[string]sight{}
	for i := range all {
		if all[i].IsEvent() {
			continue
		}
		for _, item := range all[i].Items {
			s, found := seen[item.Value]
			if !found || all[i].Return < s.before {
				seen[item.Value] = sight{item.Revision, all[i].Return}
			}
		}
	}
	var ops []history.Op
	for _, op := range all {
		if op.IsEvent() || op.Outcome == history.Failed {
			continue
		}
		if op.Outcome == history.Unknown {
			op.Return = math.MaxInt64
			if s, found := seen[op.Value]; found && op.Kind != history.Delete {
				op.Outcome, op.Revision, op.Return = history.OK, s.revision, max(s.before, op.Call)
			}
		}
		ops = append(ops, op)
	}
	return ops
}

// place is a revision of a key.
type place struct {
	key      string
	revision int64
}

// relevant leaves out unanswered writes that cannot change what any answer
// means, so that the search for an order need not try them. All rest on this:
// a write needs the revision that it replaces, and who has that was told.
//
//   - A value that nobody read: once written, nobody could have replaced it, so
//     it was written after the last read of its key, or never.
//   - A delete of a revision that an answered write replaced: it came too late.
//   - A second delete of one revision: only one can have happened, and the one
//     that began first can have happened whenever the other can.
func relevant(ops []history.Op) []history.Op {
	replaced := map[place]bool{}
	first := map[place]int64{}
	for i := range ops {
		op := &ops[i]
		at := place{op.Key, op.Compare}
		switch {
		case op.IsWrite() && op.Outcome == history.OK:
			replaced[at] = true
		case op.Kind == history.Delete && op.Outcome == history.Unknown:
			if call, found := first[at]; !found || op.Call < call {
				first[at] = op.Call
			}
		}
	}
	end := endsWithRead(ops)
	return slices.DeleteFunc(slices.Clone(ops), func(op history.Op) bool {
		at := place{op.Key, op.Compare}
		switch {
		case op.Outcome != history.Unknown:
			return false
		case op.Kind == history.Delete:
			return replaced[at] || op.Call != first[at]
		}
		return end(op.Key)
	})
}

// endsWithRead returns whether the last answers about a key show it: everything
// else that would tell whether it exists returned before they were asked for.
func endsWithRead(ops []history.Op) func(key string) bool {
	var reads, others []*history.Op
	for i := range ops {
		op := &ops[i]
		switch {
		case op.Kind == history.Get || op.Kind == history.List:
			reads = append(reads, op)
		case op.Kind == history.Count || op.Kind == history.Create && op.Outcome == history.Refused:
			others = append(others, op)
		}
	}
	known := map[string]bool{}
	return func(key string) bool {
		if ends, found := known[key]; found {
			return ends
		}
		last := int64(-1)
		for _, op := range reads {
			if op.Covers(key) {
				last = max(last, op.Call)
			}
		}
		known[key] = !slices.ContainsFunc(others, func(op *history.Op) bool { return op.Covers(key) && op.Return >= last }) && last >= 0
		return known[key]
	}
}
