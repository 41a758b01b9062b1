//go:build !linux

package program

import (
	"errors"
	"time"
)

// CPUTime is known on Linux only.
func CPUTime(int) (time.Duration, error) {
	return 0, errors.New("the CPU time of another process is known on Linux only")
}

// TreeCPUTime is known on Linux only.
func TreeCPUTime(pid int) (time.Duration, error) { return CPUTime(pid) }
