package verify

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sailplane-dev/sailplane/test/faults/history"
)

// did makes an operation of a client with its time.
func did(client int, call, end int64, op history.Op) history.Op {
	op.Client, op.Call, op.Return = client, call, end
	if op.Outcome == "" {
		op.Outcome = history.OK
	}
	return op
}

func create(name, value string, revision int64) history.Op {
	return history.Op{Kind: history.Create, Key: "/p/" + name, Value: value, Revision: revision}
}

func update(name, value string, compare, revision int64) history.Op {
	return history.Op{Kind: history.Update, Key: "/p/" + name, Value: value, Compare: compare, Revision: revision}
}

func remove(name string, compare, revision int64) history.Op {
	return history.Op{Kind: history.Delete, Key: "/p/" + name, Compare: compare, Revision: revision}
}

func list(revision int64, items ...history.Item) history.Op {
	return history.Op{Kind: history.List, Key: "/p/", Revision: revision, Items: items}
}

func get(name string, revision int64, items ...history.Item) history.Op {
	return history.Op{Kind: history.Get, Key: "/p/" + name, Revision: revision, Items: items}
}

func item(name, value string, revision int64) history.Item {
	return history.Item{Key: "/p/" + name, Value: value, Revision: revision}
}

func unanswered(op history.Op) history.Op {
	op.Outcome, op.Revision = history.Unknown, 0
	return op
}

func refused(op history.Op, items ...history.Item) history.Op {
	op.Outcome, op.Items = history.Refused, items
	return op
}

func event(kind history.Kind, name, value string, revision int64) history.Op {
	return history.Op{Kind: kind, Key: "/p/" + name, Value: value, Revision: revision, Call: 1000, Return: 1000}
}

// TestIllegal has a history for each way to be wrong. Each is refused by the
// check that names it.
func TestIllegal(t *testing.T) {
	for name, c := range map[string]struct {
		check   string
		other   string // a second check that must find it
		watched bool
		ops     []history.Op
	}{
		"a list is stale": {check: Stale, other: Linearizable, ops: []history.Op{
			did(1, 1, 2, create("a", "1", 2)),
			did(1, 3, 4, update("a", "2", 2, 3)),
			did(2, 5, 6, list(2, item("a", "1", 2))),
		}},
		"a client goes back in time": {check: Back, other: Linearizable, ops: []history.Op{
			did(1, 1, 20, create("a", "1", 2)),
			did(2, 2, 3, list(2, item("a", "1", 2))),
			did(2, 4, 5, list(1)),
		}},
		"an acknowledged write is lost": {check: Lost, other: Linearizable, ops: []history.Op{
			did(1, 1, 2, create("a", "1", 2)),
			did(1, 3, 4, create("b", "2", 3)),
			did(2, 5, 6, list(3, item("b", "2", 3))),
		}},
		"an acknowledged update is undone": {check: Lost, other: Linearizable, ops: []history.Op{
			did(1, 1, 2, create("a", "1", 2)),
			did(1, 3, 4, update("a", "2", 2, 3)),
			did(2, 5, 6, get("a", 3, item("a", "1", 2))),
		}},
		"a deleted key is back": {check: Lost, other: Linearizable, ops: []history.Op{
			did(1, 1, 2, create("a", "1", 2)),
			did(1, 3, 4, remove("a", 2, 3)),
			did(2, 5, 6, list(3, item("a", "1", 2))),
		}},
		"a write is seen and then gone": {check: Gone, other: Linearizable, ops: []history.Op{
			did(1, 1, 2, unanswered(create("a", "1", 0))),
			did(2, 3, 4, get("a", 2, item("a", "1", 2))),
			did(2, 5, 6, get("a", 2)),
		}},
		"a list has half of two writes": {check: Torn, other: Linearizable, ops: []history.Op{
			did(1, 1, 4, create("a", "1", 2)),
			did(1, 5, 9, create("b", "2", 3)),
			did(2, 2, 8, list(3, item("b", "2", 3))),
		}},
		"a list has more than its revision": {check: Torn, ops: []history.Op{
			did(1, 1, 4, create("a", "1", 2)),
			did(2, 2, 3, list(1, item("a", "1", 2))),
		}},
		"a get shows a delete after its revision": {check: Torn, other: Linearizable, ops: []history.Op{
			did(1, 1, 2, create("a", "1", 2)),
			did(1, 3, 6, remove("a", 2, 3)),
			did(2, 4, 5, get("a", 2)),
			did(3, 4, 5, get("a", 2, item("a", "1", 2))),
		}},
		"a list at a revision is another than before": {check: Snapshot, ops: []history.Op{
			did(1, 1, 2, create("a", "1", 2)),
			did(2, 3, 4, list(2, item("a", "1", 2))),
			did(1, 5, 6, update("a", "2", 2, 3)),
			did(2, 7, 8, history.Op{Kind: history.ListAt, Key: "/p/", Compare: 2, Revision: 3, Items: []history.Item{item("a", "2", 3)}}),
		}},
		"two writes have one revision": {check: Unique, ops: []history.Op{
			did(1, 1, 4, create("a", "1", 2)),
			did(2, 2, 5, create("b", "2", 2)),
		}},
		"a write has two revisions": {check: Unique, other: Linearizable, ops: []history.Op{
			did(1, 1, 2, create("a", "1", 2)),
			did(2, 3, 4, get("a", 3, item("a", "1", 3))),
		}},
		"a later write has a lower revision": {check: Order, other: Linearizable, ops: []history.Op{
			did(1, 1, 2, create("a", "1", 3)),
			did(2, 3, 4, create("b", "2", 2)),
		}},
		"a count is wrong": {check: Linearizable, ops: []history.Op{
			did(1, 1, 2, create("a", "1", 2)),
			did(2, 3, 4, history.Op{Kind: history.Count, Key: "/p/", Revision: 2}),
		}},
		"two clients create one key": {check: Linearizable, ops: []history.Op{
			did(1, 1, 4, create("a", "1", 2)),
			did(2, 2, 5, create("a", "2", 3)),
		}},
		"a right update is refused": {check: Linearizable, ops: []history.Op{
			did(1, 1, 2, create("a", "1", 2)),
			did(1, 3, 4, refused(update("a", "2", 2, 2), item("a", "1", 2))),
		}},
		"an unanswered write happens twice": {check: Linearizable, ops: []history.Op{
			did(1, 1, 2, unanswered(create("a", "1", 0))),
			did(2, 3, 4, get("a", 2, item("a", "1", 2))),
			did(2, 5, 6, remove("a", 2, 3)),
			did(2, 7, 8, get("a", 4, item("a", "1", 4))),
		}},
		"an event is missing": {check: Watch, watched: true, ops: []history.Op{
			did(1, 1, 2, create("a", "1", 2)),
		}},
		"an event comes twice": {check: Watch, watched: true, ops: []history.Op{
			did(1, 1, 2, create("a", "1", 2)),
			event(history.Put, "a", "1", 2), event(history.Put, "a", "1", 2),
		}},
		"events are out of order": {check: Watch, watched: true, ops: []history.Op{
			did(1, 1, 2, create("a", "1", 2)),
			did(1, 3, 4, remove("a", 2, 3)),
			event(history.Removed, "a", "", 3), event(history.Put, "a", "1", 2),
		}},
		"an event is nobody's write": {check: Watch, watched: true, ops: []history.Op{
			event(history.Put, "a", "1", 2),
		}},
		"an event has another value": {check: Watch, watched: true, ops: []history.Op{
			did(1, 1, 2, create("a", "1", 2)),
			did(1, 3, 4, unanswered(create("a", "2", 0))),
			event(history.Put, "a", "2", 2),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := History(throughFile(t, &history.History{Round: history.Round{Watched: c.watched}, Ops: c.ops}))
			for _, want := range []string{c.check, c.other} {
				if want != "" && !slices.ContainsFunc(found, func(v Violation) bool { return v.Check == want }) {
					t.Errorf("check %q did not refuse it; found: %v", want, found)
				}
			}
		})
	}
}

// TestLegal has histories that look wrong and are not.
func TestLegal(t *testing.T) {
	for name, c := range map[string]struct {
		watched bool
		ops     []history.Op
	}{
		"an unanswered write happens late": {ops: []history.Op{
			did(1, 1, 2, unanswered(create("a", "1", 0))),
			did(2, 3, 4, list(1)),
			did(2, 5, 6, list(2, item("a", "1", 2))),
		}},
		"an unanswered write never happens": {ops: []history.Op{
			did(1, 1, 2, unanswered(create("a", "1", 0))),
			did(2, 3, 4, list(1)),
			did(2, 5, 6, create("a", "2", 2)),
			did(2, 7, 8, list(2, item("a", "2", 2))),
		}},
		"an unanswered delete happens late": {ops: []history.Op{
			did(1, 1, 2, create("a", "1", 2)),
			did(1, 3, 4, unanswered(remove("a", 2, 0))),
			did(2, 5, 6, list(2, item("a", "1", 2))),
			did(2, 7, 8, list(3)),
		}},
		"an unanswered update that is overtaken": {ops: []history.Op{
			did(1, 1, 2, create("a", "1", 2)),
			did(1, 3, 4, unanswered(update("a", "2", 2, 0))),
			did(2, 5, 6, update("a", "3", 2, 3)),
			did(2, 7, 8, refused(update("a", "4", 2, 3), item("a", "3", 3))),
		}},
		"a list during a write": {ops: []history.Op{
			did(1, 1, 10, create("a", "1", 2)),
			did(2, 2, 3, list(2, item("a", "1", 2))),
			did(3, 4, 5, list(2, item("a", "1", 2))),
		}},
		"events of all": {watched: true, ops: []history.Op{
			did(1, 1, 2, create("a", "1", 2)),
			did(1, 3, 4, unanswered(remove("a", 2, 0))),
			event(history.Put, "a", "1", 2), event(history.Removed, "a", "", 3),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if found := History(throughFile(t, &history.History{Round: history.Round{Watched: c.watched}, Ops: c.ops})); len(found) > 0 {
				t.Errorf("it is legal, and refused: %v", found)
			}
		})
	}
}

// throughFile writes a history and reads it again.
func throughFile(t *testing.T, h *history.History) *history.History {
	t.Helper()
	path := filepath.Join(t.TempDir(), "history.jsonl")
	if err := history.Write(path, h); err != nil {
		t.Fatal(err)
	}
	again, err := history.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(h, again); diff != "" {
		t.Fatalf("the history changes in its file:\n%s", diff)
	}
	return again
}

func TestPicture(t *testing.T) {
	var page bytes.Buffer
	h := &history.History{Ops: []history.Op{did(1, 1, 2, create("a", "1", 2)), did(2, 3, 4, list(1))}}
	if err := Picture(h, &page); err != nil || !strings.Contains(page.String(), "create /p/a") {
		t.Errorf("the page does not show the create: %v", err)
	}
}
