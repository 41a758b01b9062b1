package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/sailplane-dev/sailplane/test/faults"
)

// every is after how many rounds progress is printed.
const every = 10

// work runs rounds and records them.
type work struct {
	record    *record
	programs  faults.Programs
	dir       string // for the data of storages
	histories string
	keep      bool

	mu      sync.Mutex
	failure error // to record a round
	done    int   // in this run
}

// do runs the tasks, some at once, until they are done or the context ends.
func (w *work) do(ctx context.Context, tasks []task, workers int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begun := time.Now()
	next := make(chan task)
	var all sync.WaitGroup
	for range max(workers, 1) {
		all.Go(func() {
			for t := range next {
				if err := w.one(ctx, t); err != nil {
					w.mu.Lock()
					w.failure = err
					w.mu.Unlock()
					cancel()
				}
				w.progress(ctx, len(tasks), begun)
			}
		})
	}
	for _, t := range tasks {
		select {
		case next <- t:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(next)
	all.Wait()
	return w.failure
}

// one runs a round and records it, unless it was stopped from outside.
func (w *work) one(ctx context.Context, t task) error {
	seed := rand.Uint64N(1 << 48)
	result, err := faults.Round{
		Engine: t.Engine, Fault: t.Fault, Seed: seed, Programs: w.programs, Histories: w.histories, Work: w.dir,
	}.Run(ctx)
	if ctx.Err() != nil {
		if result != nil {
			forget(result.History)
		}
		return nil
	}
	l := line{Engine: t.Engine, Fault: t.Fault, Seed: seed, Time: time.Now().UTC().Truncate(time.Second)}
	if err != nil {
		l.Error = err.Error()
	}
	if result != nil {
		l.Operations, l.Faults, l.Unanswered, l.Lost = result.Ops, result.Faults, result.Unanswered, result.Lost
		l.Seconds, l.Illegal = result.Took.Seconds(), result.Violations
		if l.failed() {
			l.History = result.History
		} else if !w.keep {
			forget(result.History)
		}
	}
	if l.failed() {
		fmt.Println(l)
	}
	return w.record.add(l)
}

// forget removes a history and its picture.
func forget(path string) {
	_ = os.Remove(path)           // there may be none
	_ = os.Remove(path + ".html") // there is one only where something is wrong
}

// progress says now and then how far it is.
func (w *work) progress(ctx context.Context, total int, begun time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done++
	if ctx.Err() != nil || w.done%every != 0 && w.done != total {
		return
	}
	took := time.Since(begun)
	left := took / time.Duration(w.done) * time.Duration(total-w.done)
	fmt.Printf("%d of %d rounds in %v, %v left, %d failed so far\n",
		w.done, total, took.Round(time.Second), left.Round(time.Second), w.record.failures())
}
