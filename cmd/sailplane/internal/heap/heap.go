// Package heap decides how much garbage the process lets pile up.
//
// Go collects when there is as much garbage as there is live data. A server with
// few objects has little of that, so under load it would collect many times a
// second, which was a sixth of its CPU time.
package heap

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// Garbage is how much may pile up however little is alive, in bytes.
const Garbage = 128 << 20

// Tune gives memory that is free back to the system, and from then on lets
// garbage pile up to the size of the live heap, as Go does, but to Garbage
// at least. It leaves a process alone whose environment has GOGC or GOMEMLIMIT.
// What it returns ends it.
func Tune() (end func()) {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		if os.Getenv(name) != "" {
			return func() {}
		}
	}
	debug.FreeOSMemory() // collects, so live is known
	t := &tuner{}
	t.adjust()
	return t.end
}

// tuner sets the percentage after each collection.
type tuner struct {
	mu    sync.Mutex
	ended bool
}

// collected is unreachable from the start: its cleanup runs after a collection.
type collected struct{ _ [16]byte }

func (t *tuner) adjust() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	debug.SetGCPercent(percent(live()))
	runtime.AddCleanup(&collected{}, (*tuner).adjust, t)
}

// end goes back to Go's default.
func (t *tuner) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	debug.SetGCPercent(standard)
}

// standard is GOGC's default.
const standard = 100

// percent is the garbage to wait for in percent of what is live.
func percent(live uint64) int {
	if live == 0 || live >= Garbage {
		return standard
	}
	return int(Garbage * 100 / live)
}

// live is what the last collection found to be in use, in bytes.
func live() uint64 {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64()
}
