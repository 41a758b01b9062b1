// Package heap decides how much garbage the process lets accumulate.
//
// Go collects when there is as much garbage as live data. A server with few
// objects has little live data, so under load it would collect many times a
// second, which was a sixth of its CPU time. So the heap may always have a certain
// size: the more of it is alive, the less is garbage, and the process does not grow
// with the history that it keeps.
package heap

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// Size is how many bytes the heap may have, however little of it is live.
const Size = 128 << 20

// Tune returns free memory to the system, and from then on lets garbage
// accumulate up to the size of the live heap, as Go does, but at least until the
// heap has Size. It does nothing if the environment has GOGC or GOMEMLIMIT. end
// undoes it.
func Tune() (end func()) {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		if os.Getenv(name) != "" {
			return func() {}
		}
	}
	debug.FreeOSMemory() // collects, so that live is known
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

// percent returns the garbage to wait for in percent of the live heap.
func percent(live uint64) int {
	if live == 0 || live >= Size/2 {
		return standard
	}
	return int((Size - live) * 100 / live)
}

// live returns how many bytes the last collection found in use.
func live() uint64 {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64()
}
