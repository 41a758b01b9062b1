package verify

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sailplane-dev/sailplane/test/faults/history"
)

// simulate makes the history of a correct storage: operations of eight clients
// that overlap, each of which happens at a moment within its time. Of the
// writes some are never answered, and happen late or never.
func simulate(seed uint64) *history.History {
	random := rand.New(rand.NewPCG(seed, 0))
	s := &simulated{items: map[string]history.Item{}, told: map[string]int64{}, revision: 1}
	var late []history.Op
	for at := int64(1000); len(s.ops) < 400; at += 10 {
		if len(late) > 0 && random.IntN(3) == 0 {
			s.apply(&late[0], at)
			late = late[1:]
		}
		op := s.random(random)
		op.Client = random.IntN(8)
		op.Call, op.Return = at-1-random.Int64N(100), at+1+random.Int64N(100)
		if s.busy[op.Client] >= op.Call {
			op.Call = s.busy[op.Client] + 1
		}
		if op.Call >= at {
			continue // the client still does something else
		}
		s.busy[op.Client] = op.Return
		if op.IsWrite() && random.IntN(15) == 0 {
			op.Outcome = history.Unknown
			switch random.IntN(3) {
			case 0:
				late = append(late, op)
			case 1:
				now := op
				s.apply(&now, at)
			}
		} else {
			s.apply(&op, at)
			s.tell(&op)
		}
		s.ops = append(s.ops, op)
	}
	return &history.History{Round: history.Round{Watched: true}, Ops: s.ops}
}

type simulated struct {
	items    map[string]history.Item
	told     map[string]int64 // the last revision of each key that any client was told
	ops      []history.Op
	revision int64
	busy     [8]int64
	values   int
}

// random chooses an operation. Writes compare the
// last revision of the key that a client was told.
func (s *simulated) random(random *rand.Rand) history.Op {
	prefix := fmt.Sprintf("/p%d/", random.IntN(2))
	op := history.Op{Key: fmt.Sprintf("%sk%d", prefix, random.IntN(3))}
	kinds := []history.Kind{history.Get, history.List, history.List, history.Count, history.Create, history.Create, history.Update, history.Update, history.Delete}
	switch op.Kind = kinds[random.IntN(len(kinds))]; op.Kind {
	case history.List, history.Count:
		op.Key = prefix
	case history.Update, history.Delete:
		op.Compare = max(s.told[op.Key], 1)
	}
	if op.Kind == history.Create || op.Kind == history.Update {
		s.values++
		op.Value = fmt.Sprint(s.values)
	}
	return op
}

// tell remembers what an answer says of revisions.
func (s *simulated) tell(op *history.Op) {
	if op.IsWrite() && op.Outcome == history.OK {
		s.told[op.Key] = op.Revision
	}
	for _, item := range op.Items {
		s.told[item.Key] = item.Revision
	}
}

// apply does an operation at a moment, with its event.
func (s *simulated) apply(op *history.Op, at int64) {
	item, exists := s.items[op.Key]
	answer := history.OK
	switch {
	case !op.IsWrite():
		for _, i := range s.items {
			if op.Covers(i.Key) {
				op.Items = append(op.Items, i)
			}
		}
		slices.SortFunc(op.Items, func(a, b history.Item) int { return cmp.Compare(a.Key, b.Key) })
		op.Count = int64(len(op.Items))
		if op.Kind == history.Count {
			op.Items = nil
		}
	case op.Kind == history.Create && exists, op.Kind != history.Create && item.Revision != op.Compare:
		answer = history.Refused
		if exists && op.Kind != history.Create {
			op.Items = []history.Item{item}
		}
	default:
		s.revision++
		e := history.Op{Kind: history.Put, Key: op.Key, Value: op.Value, Revision: s.revision, Call: at, Return: at}
		s.items[op.Key] = history.Item{Key: op.Key, Value: op.Value, Revision: s.revision}
		if op.Kind == history.Delete {
			e.Kind = history.Removed
			delete(s.items, op.Key)
		}
		s.ops = append(s.ops, e)
	}
	op.Outcome, op.Revision = answer, s.revision
}

func TestSimulatedIsLegal(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		if found := History(simulate(seed)); len(found) > 0 {
			t.Fatalf("seed %d: a correct storage is refused: %v", seed, found)
		}
	}
}

// TestMutations changes one thing in the history of a correct storage. Each
// such history is refused.
func TestMutations(t *testing.T) {
	reads := func(op *history.Op) bool { return op.Kind == history.List && len(op.Items) > 0 }
	written := func(op *history.Op) bool { return op.IsWrite() && op.Outcome == history.OK }
	event := (*history.Op).IsEvent
	for name, mutate := range map[string]struct {
		what func(*history.Op) bool
		do   func(h *history.History, i int)
	}{
		"a list shows less, and nobody deleted it": {reads, func(h *history.History, i int) {
			key := h.Ops[i].Items[0].Key
			h.Ops = slices.DeleteFunc(h.Ops, func(op history.Op) bool {
				return op.Key == key && op.Outcome == history.Unknown && op.Kind == history.Delete
			})
			i = slices.IndexFunc(h.Ops, func(op history.Op) bool { return reads(&op) && op.Items[0].Key == key })
			h.Ops[i].Items = h.Ops[i].Items[1:]
		}},
		"a list shows another revision": {reads, func(h *history.History, i int) { h.Ops[i].Items[0].Revision++ }},
		"a list shows another value":    {reads, func(h *history.History, i int) { h.Ops[i].Items[0].Value = "other" }},
		"a list has an old revision":    {reads, func(h *history.History, i int) { h.Ops[i].Revision = h.Ops[i].Items[0].Revision - 1 }},
		"a write has a later revision":  {written, func(h *history.History, i int) { h.Ops[i].Revision++ }},
		"a write was refused":           {written, func(h *history.History, i int) { h.Ops[i].Outcome = history.Refused }},
		"a write comes too late":        {written, func(h *history.History, i int) { h.Ops[i].Call, h.Ops[i].Return = 1e9, 1e9+1 }},
		"an event is missing":           {event, func(h *history.History, i int) { h.Ops = slices.Delete(h.Ops, i, i+1) }},
		"an event comes twice":          {event, func(h *history.History, i int) { h.Ops = append(h.Ops, h.Ops[i]) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(30) {
				h := simulate(seed)
				var places []int
				for i := range h.Ops {
					if mutate.what(&h.Ops[i]) {
						places = append(places, i)
					}
				}
				at := places[rand.New(rand.NewPCG(seed, 1)).IntN(len(places))]
				changed := h.Ops[at]
				mutate.do(h, at)
				if len(History(h)) == 0 {
					t.Errorf("seed %d: nobody sees that this was changed: %+v", seed, changed)
				}
			}
		})
	}
}
