package sqllog

import (
	"context"
	"fmt"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
)

const (
	// maxTogether is how many requests may share a transaction, and maxBytes how much they may
	// write: others wait for the log while a transaction has it.
	maxTogether = 100
	maxBytes    = 1 << 20
)

// request is an Append that waits; result and err may be read when done is closed.
type request struct {
	changes []revision.Change
	done    chan struct{}
	result  revision.Result
	err     error
}

func (r *request) size() (n int) {
	for _, c := range r.changes {
		n += len(c.Key) + len(c.Value)
	}
	return n
}

// writer writes for all of a server: requests that wait share a transaction. A database has one
// writer of the log at a time, and flushes its disk for each transaction.
type writer struct {
	log     *log
	queue   chan *request
	held    []*request // that write a key of the batch before them, in order
	stopped chan struct{}
}

// submit has the writer decide on a request. Once its turn has come, it is decided even if ctx
// ends.
func (w *writer) submit(ctx context.Context, r *request) error {
	select {
	case w.queue <- r:
		<-r.done
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-w.stopped:
		return revision.ErrClosed
	}
}

// run decides on requests until stop is closed.
func (w *writer) run(ctx context.Context, stop <-chan struct{}) {
	defer close(w.stopped)
	for {
		if len(w.held) > 0 {
			w.decide(ctx, w.gather(nil))
			continue
		}
		select {
		case <-stop:
			return
		case first := <-w.queue:
			w.decide(ctx, w.gather(first))
		}
	}
}

// gather returns the requests of the next batch: those that were held, the first of the queue
// if there is one, and what waits behind it. Each key is in one of them only.
func (w *writer) gather(first *request) (batch []*request) {
	held := w.held
	w.held = nil
	if first != nil {
		held = append(held, first)
	}
	keys := map[string]bool{}
	size := 0
	// take returns false where the batch is full.
	take := func(r *request) bool {
		for _, c := range r.changes {
			if keys[c.Key] {
				w.held = append(w.held, r)
				for _, c := range r.changes { // what comes later must not overtake it
					keys[c.Key] = true
				}
				return true
			}
		}
		for _, c := range r.changes {
			keys[c.Key] = true
		}
		size += r.size()
		batch = append(batch, r)
		return len(batch) < maxTogether && size < maxBytes
	}
	for i, r := range held {
		if !take(r) {
			w.held = append(w.held, held[i+1:]...)
			return batch
		}
	}
	for len(w.held) < maxTogether {
		select {
		case r := <-w.queue:
			if !take(r) {
				return batch
			}
		default:
			return batch
		}
	}
	return batch
}

// decide answers requests: with their result, with their refusal, or with the error that undid
// all of them.
func (w *writer) decide(ctx context.Context, requests []*request) {
	b := &batch{log: w.log, requests: requests, told: w.log.reading()}
	keys := b.keys()
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	w.log.begin()
	err := w.log.db.Write(ctx, keys, b.decide)
	w.log.wrote(b.begun, b.events, err)
	if err != nil {
		err = fmt.Errorf("write: %w", err)
	}
	for _, r := range requests {
		if err != nil {
			r.err = err
		}
		close(r.done)
	}
}

// writeTimeout is how long a transaction may take, with the wait for those of other servers.
const writeTimeout = 30 * time.Second

// batch is the requests of one transaction.
type batch struct {
	log      *log
	requests []*request
	told     int64                      // the last revision that is known for certain
	known    map[string]revision.Latest // to the server; the database leaves out their values
	begun    int64                      // the newest revision before it
	events   []*revision.Event
}

// keys are those of all requests, with what the server knows of them.
func (b *batch) keys() (keys []Known) {
	b.known = map[string]revision.Latest{}
	b.log.mu.Lock()
	defer b.log.mu.Unlock()
	for _, r := range b.requests {
		for _, c := range r.changes {
			known, ok := b.log.recent.Get(c.Key)
			if ok {
				b.known[c.Key] = known
			}
			keys = append(keys, Known{Key: c.Key, ID: known.Row})
		}
	}
	return keys
}

// decide is called while the log is locked, again if the transaction has to be tried again.
func (b *batch) decide(at Position, newest map[string]Row) (Batch, error) {
	b.begun, b.events = at.Current, nil
	out := Batch{}
	if at.Current < b.told {
		return out, errLost
	}
	for _, r := range b.requests {
		next := at.Current + int64(len(out.Rows))
		r.result = revision.Result{Refused: -1, Before: make([]*revision.KeyValue, len(r.changes))}
		for i, c := range r.changes {
			kv := b.before(c.Key, newest)
			r.result.Before[i] = kv
			var mod int64
			if kv != nil {
				mod = kv.Mod
			}
			if c.Expect != revision.AnyRevision && c.Expect != mod {
				r.result.Refused = i
				break
			}
		}
		if r.result.Refused < 0 {
			for i, c := range r.changes {
				before := r.result.Before[i]
				if c.Kind == revision.Check || c.Kind == revision.Delete && before == nil {
					continue
				}
				next++
				row := Row{
					ID: next, Name: c.Key, Deleted: c.Kind == revision.Delete,
					Value: c.Value, Expires: c.Expires, PrevRevision: newest[c.Key].ID,
				}
				if row.Created = before == nil; !row.Created {
					row.CreateRevision = before.Create
				}
				e := event(&row, before)
				out.Rows, b.events = append(out.Rows, row), append(b.events, e)
				out.History += historyOf(e)
			}
		}
		r.result.Revision = next
	}
	return out, nil
}

// before is the state of a key before the batch.
func (b *batch) before(key string, newest map[string]Row) *revision.KeyValue {
	row := newest[key]
	if known, ok := b.known[key]; ok && known.Row == row.ID {
		return known.KV
	}
	return row.keyValue()
}
