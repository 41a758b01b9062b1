// Package heap decides how much garbage the process lets accumulate.
//
// Go collects when there is as much garbage as live data. A server with few
// objects has little live data, so under load it would collect many times a
// second, which was a sixth of its CPU time. So the heap may always have a certain
// size: the more of it is alive, the less is garbage, and the process does not grow
// with the history that it keeps. When little is allocated any more, the garbage is
// collected and its memory given back to the system.
//
// A large request can allocate a thousand times its size, and while garbage is marked
// all others wait for a processor. So with large requests there may be more of it.
package heap

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Size is how many bytes the heap may have, however little of it is live.
const Size = 128 << 20

const (
	// room is how much garbage there may be with large requests, however little is live,
	room = 384 << 20
	// part is the part of a container's memory that this is at most,
	part = 4
	// and hold is how long after the last of them: what it left to do goes on.
	hold = 2 * time.Second
)

const (
	// quiet is for how many looks little is allocated before memory is given back. To take
	// it again costs as much as some hundred requests, so a pause between two bursts is none.
	quiet = 5
	// look is how often it looks until then,
	look = time.Second
	// and little is how many bytes are little in that time.
	little = 1 << 20
	// worthwhile is how many bytes have to be there to give back.
	worthwhile = 32 << 20
)

// Tuner sets how much garbage there may be after each collection, and then waits for
// quiet. The zero Tuner has not started.
type Tuner struct {
	mu        sync.Mutex
	ended     bool
	room      uint64    // how much garbage there may be with large requests
	large     bool      // there are some
	told      time.Time // when that was told
	idle      *time.Timer
	allocated uint64 // when the timer was set
	looks     int    // one after the other, in which little was allocated
}

// Tune returns free memory to the system, and from then on lets garbage
// accumulate up to the size of the live heap, as Go does, but at least until the
// heap has Size. When the process is quiet it returns memory again. It does
// nothing if the environment has GOGC or GOMEMLIMIT. end undoes it.
func (t *Tuner) Tune() (end func()) {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		if os.Getenv(name) != "" {
			return func() {}
		}
	}
	t.start()
	return t.end
}

func (t *Tuner) start() {
	debug.FreeOSMemory() // collects, so that live is known
	limit, _ := os.ReadFile("/sys/fs/cgroup/memory.max")
	t.room = roomIn(limit)
	t.idle = time.AfterFunc(look, t.rest)
	t.adjust()
}

// Large says whether there are large requests. It counts from the next collection on.
func (t *Tuner) Large(some bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.large, t.told = some, time.Now()
}

// collected is unreachable from the start: its cleanup runs after a collection.
type collected struct{ _ [16]byte }

func (t *Tuner) adjust() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	room := uint64(0)
	if t.large || time.Since(t.told) < hold {
		room = t.room
	}
	debug.SetGCPercent(percent(read("/gc/heap/live:bytes"), room))
	t.looks = 0
	t.await()
	runtime.AddCleanup(&collected{}, (*Tuner).adjust, t)
}

// await has the tuner look again. The caller holds the lock.
func (t *Tuner) await() {
	t.allocated = read("/gc/heap/allocs:bytes")
	t.idle.Reset(look)
}

// rest gives memory back if it is quiet and that is worthwhile. The next look is after
// the next collection.
func (t *Tuner) rest() {
	t.mu.Lock()
	if t.ended {
		t.mu.Unlock()
		return
	}
	if t.looks++; read("/gc/heap/allocs:bytes")-t.allocated > little {
		t.looks = 0
	}
	if t.looks < quiet {
		t.await()
		t.mu.Unlock()
		return
	}
	t.mu.Unlock()
	if spare() > worthwhile {
		debug.FreeOSMemory() // collects, after which adjust waits for the lock
	}
}

// end goes back to Go's default.
func (t *Tuner) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	t.idle.Stop()
	debug.SetGCPercent(standard)
}

// standard is GOGC's default.
const standard = 100

// percent returns the garbage to wait for, at least so many bytes, in percent of the
// live heap.
func percent(live, room uint64) int {
	if live == 0 {
		return standard
	}
	return int(max(live, Size-min(live, Size), room) * 100 / live)
}

// roomIn returns the room for garbage in a container, of which this is the limit as
// cgroups say it: a number of bytes, or "max".
func roomIn(limit []byte) uint64 {
	if n, err := strconv.ParseUint(strings.TrimSpace(string(limit)), 10, 64); err == nil {
		return min(room, n/part)
	}
	return room
}

// spare is how many bytes are garbage, or free and not given back.
func spare() uint64 {
	used := read("/memory/classes/heap/objects:bytes") + read("/memory/classes/heap/free:bytes")
	return used - min(used, read("/gc/heap/live:bytes"))
}

// read returns a number of the runtime.
func read(name string) uint64 {
	samples := []metrics.Sample{{Name: name}}
	metrics.Read(samples)
	return samples[0].Value.Uint64()
}
