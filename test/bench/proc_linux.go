package main

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// processTime is the CPU time of a process so far. Its clock counts nanoseconds
// where /proc/PID/stat counts hundredths of a second; see clock_getcpuclockid(3).
func processTime(pid int) (time.Duration, error) {
	const cpuClockSched = 2
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|cpuClockSched), &ts); err != nil {
		return 0, fmt.Errorf("CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}
