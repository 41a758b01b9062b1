package heap

import (
	"runtime"
	"testing"
	"time"
)

func TestPercent(t *testing.T) {
	tests := map[string]struct {
		reason string
		live   uint64
		room   uint64
		want   int
	}{
		"unknown":         {"nothing was collected yet", 0, room, 100},
		"small":           {"little is alive: the heap's size counts", 32 << 20, 0, 300},
		"equal":           {"as much as Go would wait for", Size / 2, 0, 100},
		"large":           {"memory is never more than twice what is alive", 10 * Size, 0, 100},
		"room":            {"large requests make much garbage", Size, room, 300},
		"small with room": {"the garbage counts, not the heap", 32 << 20, room, 1200},
		"large with room": {"there is room enough", 10 * Size, room, 100},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := percent(tc.live, tc.room); got != tc.want {
				t.Errorf("%s: percent(%d, %d) = %d, want %d", tc.reason, tc.live, tc.room, got, tc.want)
			}
		})
	}
}

func TestRoomIn(t *testing.T) {
	for limit, want := range map[string]uint64{"": room, "max\n": room, "1073741824\n": 256 << 20, "1099511627776\n": room} {
		if got := roomIn([]byte(limit)); got != want {
			t.Errorf("roomIn(%q) = %d, want %d", limit, got, want)
		}
	}
}

// TestLarge: there may be more garbage with large requests, and not without.
func TestLarge(t *testing.T) {
	tuner := &Tuner{}
	tuner.start()
	defer tuner.end()
	without := gogc()
	tuner.Large(true)
	for gogc() <= without { // the test's time limit ends it
		runtime.GC()
		runtime.Gosched()
	}
	tuner.Large(false)
	tuner.mu.Lock()
	tuner.told = time.Now().Add(-hold)
	tuner.mu.Unlock()
	for gogc() > without+without/2 {
		runtime.GC()
		runtime.Gosched()
	}
}

// TestTune: the percentage follows what is alive from one collection to the
// next, and is Go's again in the end.
func TestTune(t *testing.T) {
	tuner := &Tuner{}
	tuner.start()
	defer tuner.end()
	before := gogc()
	if before <= standard {
		t.Fatalf("with a small heap GOGC is %d, want more than %d", before, standard)
	}
	kept := make([]byte, Size)
	for gogc() != standard { // the test's time limit ends it
		runtime.GC()
		runtime.Gosched()
	}
	runtime.KeepAlive(kept)
	for gogc() == standard {
		runtime.GC()
		runtime.Gosched()
	}
	tuner.end()
	runtime.GC()
	if got := gogc(); got != standard {
		t.Errorf("in the end GOGC is %d, want %d", got, standard)
	}
}

// TestRest: memory that was used goes back to the system when the process is quiet.
func TestRest(t *testing.T) {
	tuner := &Tuner{}
	tuner.start()
	defer tuner.end()
	func() {
		used := make([]byte, 3*worthwhile)
		for i := range used {
			used[i] = 1
		}
	}()
	if spare() <= worthwhile {
		t.Fatalf("%d bytes are spare right after %d were used", spare(), 3*worthwhile)
	}
	for spare() > worthwhile { // the test's time limit ends it
		tuner.rest() // as its timer does; the first time, much was allocated
	}
}

func TestTuneLeavesSettingsAlone(t *testing.T) {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, "100")
			before := gogc()
			tuner := &Tuner{}
			end := tuner.Tune()
			defer end()
			tuner.Large(true)
			if got := gogc(); got != before {
				t.Errorf("GOGC is %d, want %d as it was: who set %s knows better", got, before, name)
			}
		})
	}
}

func gogc() int { return int(read("/gc/gogc:percent")) }
