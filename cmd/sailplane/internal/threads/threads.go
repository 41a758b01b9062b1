// Package threads decides how many goroutines compute at the same time.
//
// Go runs as many as there are processors, and lets each compute for 10 ms before the
// next. On two processors, a request that needs a tenth of a millisecond waits for that
// behind each of a few large ones, collections of garbage among them. The system's
// scheduler knows which threads used little and lets them go first, but can only choose
// among threads. So there are more of them than processors.
package threads

import (
	"os"
	"runtime"
)

const (
	// factor is how many threads there are for each processor,
	factor = 4
	// enough are how many there are at most if that is more than the processors: with so
	// many, some are always free. [controlplane.Limits] has large requests use half.
	enough = 16
)

// Tune raises the number of threads that run Go code (GOMAXPROCS), unless the environment
// says how many there are. end undoes it.
func Tune() (end func()) {
	if os.Getenv("GOMAXPROCS") != "" {
		return func() {}
	}
	runtime.GOMAXPROCS(number(runtime.GOMAXPROCS(0)))
	return runtime.SetDefaultGOMAXPROCS
}

func number(processors int) int { return max(processors, min(factor*processors, enough)) }
