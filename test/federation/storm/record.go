package storm

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"
)

// none is the fault while there is none.
const none = "none"

// record knows who is hurt, and what became of requests.
type record struct {
	slowest time.Duration
	out     io.Writer
	begun   time.Time
	pulse   pulse

	mu    sync.Mutex
	turns map[string]int // of each server: odd while it is hurt
	now   string         // the fault
	kinds map[string]*kind
	found int
}

// kind is what came of a kind of fault.
type kind struct {
	times            int
	requests         int           // to servers that were not hurt
	longest          time.Duration // of them
	hurt, refused    int           // requests to the one that was hurt, and those it did not answer
	longestHurt      time.Duration
	again            time.Duration // the longest until a server was available
	longestOperation string
	busy             int // requests that took long because the machine did
}

func newRecord(slowest time.Duration, out io.Writer) *record {
	return &record{slowest: slowest, out: out, begun: time.Now(), turns: map[string]int{}, now: none, kinds: map[string]*kind{none: {}}}
}

// wrong notes something that must not be.
func (r *record) wrong(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note(fmt.Sprintf(format, args...))
}

func (r *record) note(what string) {
	r.found++
	if r.found <= 100 {
		fmt.Fprintf(r.out, "WRONG at %s, %v after the start, fault %s: %s\n",
			time.Now().Format(time.TimeOnly), time.Since(r.begun).Round(time.Millisecond), r.now, what)
	}
}

func (r *record) failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.found > 0
}

// hurt says that a server is not expected to answer.
func (r *record) hurt(server, fault string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turns[server]++
	r.now = fault
	if r.kinds[fault] == nil {
		r.kinds[fault] = &kind{}
	}
	r.kinds[fault].times++
}

// mended says that it is again, and how long it was ready until the front saw that.
func (r *record) mended(server string, after, limit time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.kinds[r.now]
	k.again = max(k.again, after)
	if after > limit {
		r.note(fmt.Sprintf("%s was available only %v after it was ready", server, after))
	}
	r.turns[server]++
	r.now = none
}

// ticket is a request that runs, or a watch.
type ticket struct {
	server, fault string
	turn          int
	begun         time.Time
}

func (r *record) begin(server string) ticket {
	r.mu.Lock()
	defer r.mu.Unlock()
	return ticket{server, r.now, r.turns[server], time.Now()}
}

// healthy tells whether the server was not hurt since then.
func (r *record) healthy(t ticket) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.well(t)
}

func (r *record) well(t ticket) bool { return t.turn%2 == 0 && r.turns[t.server] == t.turn }

// finish notes what became of a request, and tells whether the server was not hurt meanwhile.
// The failure is empty if it answered.
func (r *record) finish(t ticket, operation, failure string) (well bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	took, name := time.Since(t.begun), r.now
	if name == none {
		name = t.fault
	}
	k := r.kinds[name]
	if !r.well(t) {
		k.hurt++
		k.longestHurt = max(k.longestHurt, took)
		if failure != "" {
			k.refused++
		}
		return false
	}
	k.requests++
	busy := r.pulse.since(t.begun)
	if took -= busy; took > k.longest {
		k.longest, k.longestOperation = took, operation
	}
	if failure != "" {
		r.note(fmt.Sprintf("%s failed after %v: %s", operation, took.Round(time.Millisecond), failure))
	} else if took > r.slowest {
		r.note(fmt.Sprintf("%s took %v, beside %v in which the machine was busy", operation, took.Round(time.Millisecond), busy.Round(time.Millisecond)))
	} else if took+busy > r.slowest {
		k.busy++
	}
	return true
}

// table prints a row for each kind of fault.
func (r *record) table(out io.Writer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintln(out, "| fault | times | requests to others | longest | requests to the hurt one | not answered | longest | available after |")
	fmt.Fprintln(out, "|---|--:|--:|--:|--:|--:|--:|--:|")
	ms := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	for _, name := range slices.Sorted(maps.Keys(r.kinds)) {
		k := r.kinds[name]
		fmt.Fprintf(out, "| %s | %d | %d | %v | %d | %d | %v | %v |\n",
			name, k.times, k.requests, ms(k.longest), k.hurt, k.refused, ms(k.longestHurt), ms(k.again))
	}
	for _, name := range slices.Sorted(maps.Keys(r.kinds)) {
		if k := r.kinds[name]; k.requests > 0 {
			fmt.Fprintf(out, "the longest to others, %s: %s; %d took long as the machine was busy\n", name, k.longestOperation, k.busy)
		}
	}
}
