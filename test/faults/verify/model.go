package verify

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"

	"github.com/sailplane-dev/sailplane/test/faults/history"
)

// state is a prefix: its keys in order, and the highest revision that is known
// to have been reached. A list is one atomic read of all of it.
type state struct {
	revision int64
	items    []history.Item
}

func (s state) find(key string) (history.Item, int, bool) {
	i, found := slices.BinarySearchFunc(s.items, key, func(i history.Item, key string) int { return strings.Compare(i.Key, key) })
	if !found {
		return history.Item{}, i, false
	}
	return s.items[i], i, true
}

// operations are those that the model explains. Reads of an old revision are
// not: what they show is compared by snapshot.
func operations(ops []history.Op) []porcupine.Operation {
	var all []porcupine.Operation
	for i := range ops {
		if op := &ops[i]; op.Kind != history.ListAt {
			all = append(all, porcupine.Operation{ClientId: op.Client, Input: op, Call: op.Call, Return: op.Return})
		}
	}
	return all
}

// model is the sequential storage. Its partitions are the prefixes.
func model() porcupine.Model {
	return porcupine.Model{
		Partition: partition,
		Init:      func() any { return state{} },
		Step: func(s, input, _ any) (bool, any) {
			op := input.(*history.Op)
			if op.IsWrite() {
				return stepWrite(s.(state), op)
			}
			return stepRead(s.(state), op)
		},
		Equal: func(a, b any) bool {
			x, y := a.(state), b.(state)
			return x.revision == y.revision && slices.Equal(x.items, y.items)
		},
		Hash: func(s any) uint64 {
			h := fnv.New64a()
			fmt.Fprint(h, s)
			return h.Sum64()
		},
		DescribeOperation: func(input, _ any) string { return describe(input.(*history.Op)) },
		DescribeState:     func(s any) string { return fmt.Sprintf("%d: %v", s.(state).revision, s.(state).items) },
	}
}

func partition(all []porcupine.Operation) [][]porcupine.Operation {
	byPrefix := map[string][]porcupine.Operation{}
	for _, o := range all {
		prefix := o.Input.(*history.Op).Prefix()
		byPrefix[prefix] = append(byPrefix[prefix], o)
	}
	var parts [][]porcupine.Operation
	for _, part := range byPrefix {
		parts = append(parts, part)
	}
	return parts
}

// stepRead compares an answer with the state, and its revision with what the
// state has reached.
func stepRead(s state, op *history.Op) (bool, any) {
	if op.Revision < s.revision {
		return false, s
	}
	next := state{op.Revision, s.items}
	switch op.Kind {
	case history.List:
		return slices.Equal(op.Items, s.items), next
	case history.Count:
		return op.Count == int64(len(s.items)), next
	default:
		return shows(s, op), next
	}
}

// shows says whether the items of an operation on a key are what the state has of it.
func shows(s state, op *history.Op) bool {
	item, _, exists := s.find(op.Key)
	if !exists {
		return len(op.Items) == 0
	}
	return len(op.Items) == 1 && op.Items[0] == item
}

// stepWrite does a write, or finds that it was right to refuse it. One that
// nobody knows of happens if it can; that it did not is the same as that it
// happens after everything else.
func stepWrite(s state, op *history.Op) (bool, any) {
	item, at, exists := s.find(op.Key)
	matches := exists && item.Revision == op.Compare
	if op.Kind == history.Create {
		matches = !exists
	}
	switch op.Outcome {
	case history.Refused:
		shown := op.Kind == history.Create || shows(s, op)
		return !matches && shown && op.Revision >= s.revision, state{max(op.Revision, s.revision), s.items}
	case history.OK:
		if !matches || op.Revision <= s.revision {
			return false, s
		}
	default:
		if !matches {
			return true, s
		}
	}
	next := state{max(op.Revision, s.revision), slices.Clone(s.items)}
	switch {
	case op.Kind == history.Delete:
		next.items = slices.Delete(next.items, at, at+1)
	case exists:
		next.items[at] = history.Item{Key: op.Key, Value: op.Value, Revision: op.Revision}
	default:
		next.items = slices.Insert(next.items, at, history.Item{Key: op.Key, Value: op.Value, Revision: op.Revision})
	}
	return true, next
}

// describe is an operation in a picture.
func describe(op *history.Op) string {
	text := fmt.Sprintf("%s %s", op.Kind, op.Key)
	if op.Compare != 0 {
		text += fmt.Sprintf(" if %d", op.Compare)
	}
	if op.Value != "" {
		text += " = " + op.Value
	}
	if op.Kind == history.Count {
		return fmt.Sprintf("%s -> %d @%d", text, op.Count, op.Revision)
	}
	if op.IsWrite() && op.Outcome != history.Refused {
		return fmt.Sprintf("%s -> %s @%d", text, op.Outcome, op.Revision)
	}
	return fmt.Sprintf("%s -> %s %v @%d", text, op.Outcome, op.Items, op.Revision)
}
