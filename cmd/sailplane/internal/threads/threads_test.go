package threads

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

func TestNumber(t *testing.T) {
	tests := map[string]struct {
		reason     string
		processors int
		want       int
	}{
		"one":  {"a thread that computes leaves three", 1, 4},
		"two":  {"two for each", 2, 4},
		"some": {"no more than are enough", 12, 16},
		"many": {"never fewer than processors", 64, 64},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := number(tc.processors); got != tc.want {
				t.Errorf("%s: number(%d) = %d, want %d", tc.reason, tc.processors, got, tc.want)
			}
		})
	}
}

// TestTune: the number is raised while more are wanted and a moment longer, unless the
// environment says it, and is as before in the end.
func TestTune(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	before := runtime.GOMAXPROCS(0)
	check := func(when string, want int) {
		t.Helper()
		if got := runtime.GOMAXPROCS(0); got != want {
			t.Errorf("%s, GOMAXPROCS is %d, want %d", when, got, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		more, end := Tune()
		check("at first", before)
		more(true)
		check("when more are wanted", number(before))
		more(false)
		time.Sleep(hold - time.Millisecond)
		check("a moment later", number(before))
		more(true)
		time.Sleep(2 * hold)
		check("when more are wanted for long", number(before))
		more(false)
		time.Sleep(hold + time.Millisecond)
		check("when none were wanted for a while", before)
		more(true)
		end()
		check("in the end", before)
		more(true)
		check("after the end", before)
	})
	t.Setenv("GOMAXPROCS", "3")
	more, end := Tune()
	more(true)
	check("where the environment says it", before)
	end()
	check("in the end", before)
}
