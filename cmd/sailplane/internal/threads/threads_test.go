package threads

import (
	"runtime"
	"testing"
)

func TestNumber(t *testing.T) {
	tests := map[string]struct {
		reason     string
		processors int
		want       int
	}{
		"one":  {"a thread that computes leaves three", 1, 4},
		"two":  {"as for one", 2, 8},
		"some": {"no more than are enough", 8, 16},
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

// TestTune: the number is raised until the end, unless the environment says it.
func TestTune(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	before := runtime.GOMAXPROCS(0)
	end := Tune()
	if got := runtime.GOMAXPROCS(0); got != number(before) {
		t.Errorf("GOMAXPROCS is %d, want %d", got, number(before))
	}
	end()
	if got := runtime.GOMAXPROCS(0); got != before {
		t.Errorf("in the end GOMAXPROCS is %d, want %d as it was", got, before)
	}
	t.Setenv("GOMAXPROCS", "3")
	defer Tune()()
	if got := runtime.GOMAXPROCS(0); got != before {
		t.Errorf("GOMAXPROCS is %d, want %d: who set it knows better", got, before)
	}
}
