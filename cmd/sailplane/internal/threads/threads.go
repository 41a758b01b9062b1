// Package threads decides how many goroutines compute at the same time.
//
// Go runs as many as there are processors, and lets each compute for 10 ms before the
// next. On two processors, a request that needs a tenth of a millisecond waits for that
// behind each of a few large ones, collections of garbage among them. The system's
// scheduler knows which threads used little and lets them go first, but can only choose
// among threads. So there are more of them than processors while large requests compute.
// Otherwise there are not: threads that look for work in vain make small ones dearer.
package threads

import (
	"os"
	"runtime"
	"sync"
	"time"
)

const (
	// factor is how many threads there are for each processor: few, since all that have
	// nothing to do mark garbage.
	factor = 2
	// few are how many there are at least, and enough how many at most if that is more
	// than the processors: with so many, some are always free.
	few, enough = 4, 16
	// hold is how long there are more threads after the last large request: what it left
	// to do goes on.
	hold = 2 * time.Second
)

// Tune returns a function that raises the number of threads that run Go code (GOMAXPROCS)
// while it was last called with true, and for a moment after. It does nothing if the
// environment says how many there are. end goes back to Go's default for good.
func Tune() (more func(bool), end func()) {
	if os.Getenv("GOMAXPROCS") != "" {
		return func(bool) {}, func() {}
	}
	t := &tuner{}
	t.later = time.AfterFunc(hold, t.lower)
	t.later.Stop()
	return t.more, t.end
}

type tuner struct {
	mu            sync.Mutex
	wanted, ended bool
	raised        bool
	later         *time.Timer
}

func (t *tuner) more(wanted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wanted = wanted
	switch {
	case t.ended:
	case !wanted:
		t.later.Reset(hold)
	case !t.raised:
		t.raised = true
		runtime.GOMAXPROCS(number(runtime.GOMAXPROCS(0)))
	}
}

func (t *tuner) lower() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.raised && (!t.wanted || t.ended) {
		t.raised = false
		runtime.SetDefaultGOMAXPROCS()
	}
}

func (t *tuner) end() {
	t.mu.Lock()
	t.ended = true
	t.later.Stop()
	t.mu.Unlock()
	t.lower()
}

func number(processors int) int { return max(processors, min(max(factor*processors, few), enough)) }
