package heap

import (
	"runtime"
	"testing"
)

func TestPercent(t *testing.T) {
	tests := map[string]struct {
		reason string
		live   uint64
		want   int
	}{
		"unknown": {"nothing was collected yet", 0, 100},
		"small":   {"little is alive: the heap's size counts", 32 << 20, 300},
		"equal":   {"as much as Go would wait for", Size / 2, 100},
		"large":   {"memory is never more than twice what is alive", 10 * Size, 100},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := percent(tc.live); got != tc.want {
				t.Errorf("%s: percent(%d) = %d, want %d", tc.reason, tc.live, got, tc.want)
			}
		})
	}
}

// TestTune: the percentage follows what is alive from one collection to the
// next, and is Go's again in the end.
func TestTune(t *testing.T) {
	tuner := start()
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
	tuner := start()
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
			end := Tune()
			defer end()
			if got := gogc(); got != before {
				t.Errorf("GOGC is %d, want %d as it was: who set %s knows better", got, before, name)
			}
		})
	}
}

func gogc() int { return int(read("/gc/gogc:percent")) }
