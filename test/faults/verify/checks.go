package verify

import (
	"cmp"
	"slices"

	"github.com/sailplane-dev/sailplane/test/faults/history"
)

// unique finds revisions that two writes have, and writes that have two.
func unique(f *findings, ops []history.Op) {
	writes := map[int64]string{} // what was written, by revision
	values := map[string]int64{}
	see := func(what string, revision int64) {
		if other, taken := writes[revision]; taken && other != what {
			f.add(Unique, "revision %d is that of %s and of %s", revision, other, what)
		}
		writes[revision] = what
		if before, known := values[what]; known && before != revision {
			f.add(Unique, "%s has the revisions %d and %d", what, before, revision)
		}
		values[what] = revision
	}
	for i := range ops {
		op := &ops[i]
		switch {
		case op.IsWrite() && op.Outcome == history.OK && op.Kind == history.Delete:
			if other, taken := writes[op.Revision]; taken {
				f.add(Unique, "revision %d is that of %s and of %s", op.Revision, other, describe(op))
			}
			writes[op.Revision] = describe(op)
		case op.IsWrite() && op.Outcome == history.OK:
			see(op.Key+" = "+op.Value, op.Revision)
		}
		for _, item := range op.Items {
			see(item.Key+" = "+item.Value, item.Revision)
		}
	}
}

// after calls do with each operation that follows, in real time, on the
// acknowledged write with the highest revision before it.
func after(ops []history.Op, do func(op, write *history.Op)) {
	var calls, returns []*history.Op
	for i := range ops {
		calls = append(calls, &ops[i])
		if ops[i].IsWrite() && ops[i].Outcome == history.OK {
			returns = append(returns, &ops[i])
		}
	}
	slices.SortStableFunc(calls, func(a, b *history.Op) int { return cmp.Compare(a.Call, b.Call) })
	slices.SortStableFunc(returns, func(a, b *history.Op) int { return cmp.Compare(a.Return, b.Return) })
	var highest *history.Op
	for _, op := range calls {
		for len(returns) > 0 && returns[0].Return < op.Call {
			if highest == nil || returns[0].Revision > highest.Revision {
				highest = returns[0]
			}
			returns = returns[1:]
		}
		if highest != nil {
			do(op, highest)
		}
	}
}

// order finds writes whose revision is not above all that were acknowledged before.
func order(f *findings, ops []history.Op) {
	after(ops, func(op, write *history.Op) {
		if op.IsWrite() && op.Outcome == history.OK && op.Revision <= write.Revision {
			f.add(Order, "%s began after %s was acknowledged", describe(op), describe(write))
		}
	})
}

// stale finds answers of a revision before what was acknowledged before they were asked for.
func stale(f *findings, ops []history.Op) {
	after(ops, func(op, write *history.Op) {
		answered := op.Outcome == history.Refused || op.Outcome == history.OK && !op.IsWrite()
		if answered && op.Kind != history.ListAt && op.Revision < write.Revision {
			f.add(Stale, "client %d: %s began after %s was acknowledged", op.Client, describe(op), describe(write))
		}
	})
}

// back finds clients that were told a lower revision than before. What an
// unanswered write was found to be is nothing its client was told.
func back(f *findings, ops []history.Op) {
	last := map[int]*history.Op{}
	for i := range ops {
		op := &ops[i]
		if op.IsEvent() || op.Kind == history.ListAt || op.Outcome != history.OK && op.Outcome != history.Refused {
			continue
		}
		before := last[op.Client]
		if before != nil && op.Revision < before.Revision {
			f.add(Back, "client %d: %s, before that %s", op.Client, describe(op), describe(before))
			continue
		}
		last[op.Client] = op
	}
}

// snapshot finds lists of one prefix and one revision that differ.
func snapshot(f *findings, ops []history.Op) {
	shown := map[place]*history.Op{}
	for i := range ops {
		op := &ops[i]
		at := place{op.Key, op.Revision}
		switch op.Kind {
		case history.List:
		case history.ListAt:
			at.revision = op.Compare
		default:
			continue
		}
		if other := shown[at]; other == nil {
			shown[at] = op
		} else if !slices.Equal(other.Items, op.Items) {
			f.add(Snapshot, "at revision %d %s, and %s", at.revision, describe(op), describe(other))
		}
	}
}

// watch compares the events with the writes.
func watch(f *findings, all []history.Op) {
	events := map[int64]*history.Op{}
	written := map[string]*history.Op{}
	deletes := map[string]bool{}
	var last int64
	for i := range all {
		op := &all[i]
		switch {
		case op.IsWrite() && op.Outcome != history.Refused && op.Kind == history.Delete:
			deletes[op.Key] = true
		case op.IsWrite() && op.Outcome != history.Refused:
			written[op.Value] = op
		case op.IsEvent():
			if op.Revision <= last {
				f.add(Watch, "%s @%d is delivered after @%d", op.Kind, op.Revision, last)
			}
			last = max(last, op.Revision)
			events[op.Revision] = op
		}
	}
	for _, e := range events {
		w := written[e.Value]
		if e.Kind == history.Put && (w == nil || w.Key != e.Key) || e.Kind == history.Removed && !deletes[e.Key] {
			f.add(Watch, "%s %s = %q @%d is nobody's write", e.Kind, e.Key, e.Value, e.Revision)
		}
	}
	for i := range all {
		op := &all[i]
		if op.IsWrite() && op.Outcome == history.OK && !delivers(events[op.Revision], op) {
			f.add(Watch, "%s was acknowledged, and not delivered", describe(op))
		}
		for _, item := range op.Items {
			if e := events[item.Revision]; e == nil || e.Key != item.Key || e.Value != item.Value {
				f.add(Watch, "%s = %s @%d was read, and not delivered", item.Key, item.Value, item.Revision)
			}
		}
	}
}

// delivers says whether an event is that of a write.
func delivers(e, write *history.Op) bool {
	kind := history.Put
	if write.Kind == history.Delete {
		kind = history.Removed
	}
	return e != nil && e.Kind == kind && e.Key == write.Key && e.Value == write.Value
}
