package controlplane

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestStopwatch: what waits for too long is cut, however often it waited before, and nothing
// is cut that does not wait. All of its time is that of synctest: nothing sleeps.
func TestStopwatch(t *testing.T) {
	t.Parallel()
	const limit = 10 * time.Second
	cases := map[string]struct {
		reason string
		waits  []time.Duration // one after the other
		rest   time.Duration   // after each
		want   int
	}{
		"short":        {"each has its own time", []time.Duration{limit / 2, limit / 2, limit / 2, limit / 2}, 0, 0},
		"long":         {"it takes longer than it may", []time.Duration{limit + 1}, 0, 1},
		"long at last": {"the time of the first is not that of the last", []time.Duration{limit / 2, limit - 1, limit + 1}, 0, 1},
		"rest":         {"nobody waits between two waits", []time.Duration{1, 1}, 3 * limit, 0},
		"after rest":   {"the watch goes on", []time.Duration{1, limit + 1}, 3 * limit, 1},
		"again":        {"who goes on is cut again", []time.Duration{2 * limit, 2 * limit}, 0, 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				got := 0
				s := stopwatch{cut: func() { got++ }}
				for _, wait := range tc.waits {
					s.begin(time.Now().Add(limit))
					time.Sleep(wait)
					synctest.Wait()
					s.end()
					time.Sleep(tc.rest)
				}
				s.stop()
				s.begin(time.Now().Add(limit)) // a handler whose time is over may go on
				time.Sleep(2 * limit)
				synctest.Wait()
				if got != tc.want {
					t.Errorf("%s: %d waits were cut, want %d", tc.reason, got, tc.want)
				}
			})
		})
	}
}
