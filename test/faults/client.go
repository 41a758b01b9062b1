package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sailplane-dev/sailplane/test/faults/history"
	"github.com/sailplane-dev/sailplane/test/faults/wire"
)

// pause is how long a client waits after an operation that failed.
const pause = 2 * time.Millisecond

// reader is the number of the client that looks at everything in the end.
const reader = clients

// unknown is the revision of a key that exists, and was not read.
const unknown = -1

// client does operations at random, and remembers the revisions it was told.
type client struct {
	run    *run
	id     int
	random *rand.Rand
	wrote  int
	have   map[string]int64 // the revision of each key, as far as it knows
	lists  []history.Op     // lists it has seen, to read again at their revision
}

func newClient(r *run, id int) *client {
	return &client{run: r, id: id, random: rand.New(rand.NewPCG(r.round.Seed, uint64(id)+1)), have: map[string]int64{}}
}

func keyOf(prefix, key int) string { return fmt.Sprintf("%sk%d", prefixOf(prefix), key) }

func prefixOf(prefix int) string { return fmt.Sprintf("%sp%d/", root, prefix) }

// work does its part of the budget.
func (c *client) work(ctx context.Context) {
	for range budget / clients {
		op, err := c.do(ctx, c.choose())
		if err != nil {
			return // the round is over
		}
		if op.Outcome == history.Failed || op.Outcome == history.Unknown {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
		}
	}
}

// choose decides what to do next.
func (c *client) choose() history.Op {
	prefix := c.random.IntN(prefixes)
	op := history.Op{Key: keyOf(prefix, c.random.IntN(keys))}
	switch at := c.random.IntN(100); {
	case at < 12:
		op.Kind = history.Get
	case at < 34:
		op.Kind, op.Key = history.List, prefixOf(prefix)
	case at < 39:
		op.Kind, op.Key = history.Count, prefixOf(prefix)
	case at < 44 && len(c.lists) > 0:
		old := c.lists[c.random.IntN(len(c.lists))]
		op.Kind, op.Key, op.Compare = history.ListAt, old.Key, old.Revision
	default:
		c.chooseWrite(&op)
	}
	return op
}

// chooseWrite makes a write of what the client knows of the key, or believes to.
func (c *client) chooseWrite(op *history.Op) {
	op.Compare = c.have[op.Key]
	switch {
	case op.Compare == unknown:
		op.Kind, op.Compare = history.Get, 0
		return
	case op.Compare == 0:
		op.Kind = history.Create
	case c.random.IntN(4) == 0:
		op.Kind = history.Delete
		return
	default:
		op.Kind = history.Update
	}
	c.wrote++
	op.Value = fmt.Sprintf("%d-%d", c.id, c.wrote)
}

// do does an operation, when a storage runs, and records it.
func (c *client) do(ctx context.Context, op history.Op) (history.Op, error) {
	server, err := c.run.places[c.id%len(c.run.places)].get(ctx)
	if err != nil {
		return op, err
	}
	op.Client, op.Call = c.id, c.run.now()
	answer, err := server.do(wire.Request{Kind: op.Kind, Key: op.Key, Value: op.Value, Revision: op.Compare})
	op.Return = c.run.now()
	if err != nil {
		answer = history.Op{Outcome: history.Failed, Error: err.Error()}
		if op.IsWrite() {
			answer.Outcome = history.Unknown
		}
	}
	op.Outcome, op.Revision, op.Items, op.Count, op.Error = answer.Outcome, answer.Revision, answer.Items, answer.Count, answer.Error
	c.learn(&op)
	c.run.record(op)
	return op, nil
}

// learn remembers the revisions of an answer.
func (c *client) learn(op *history.Op) {
	answered := op.Outcome == history.OK || op.Outcome == history.Refused
	switch {
	case !answered || op.Kind == history.ListAt || op.Kind == history.Count:
		return
	case op.IsWrite() && op.Outcome == history.OK && op.Kind != history.Delete:
		c.have[op.Key] = op.Revision
		return
	case op.Kind == history.Create:
		c.have[op.Key] = unknown
		return
	}
	for prefix := range prefixes {
		for key := range keys {
			if op.Covers(keyOf(prefix, key)) {
				delete(c.have, keyOf(prefix, key))
			}
		}
	}
	for _, item := range op.Items {
		c.have[item.Key] = item.Revision
	}
	if op.Kind == history.List {
		c.lists = append(c.lists, *op)
	}
}

// now is the time of the history.
func (r *run) now() int64 { return time.Since(r.begun).Nanoseconds() }

// record keeps an operation of a client.
func (r *run) record(op history.Op) {
	r.mu.Lock()
	r.ops = append(r.ops, op)
	r.mu.Unlock()
	r.progress.add(op.Outcome == history.Failed || op.Outcome == history.Unknown)
}
