package program

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CPUTime is the CPU time of a process so far, without its children. Its clock counts nanoseconds
// where /proc/PID/stat counts hundredths of a second; see clock_getcpuclockid(3).
func CPUTime(pid int) (time.Duration, error) {
	const cpuClockSched = 2
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|cpuClockSched), &ts); err != nil {
		return 0, fmt.Errorf("CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// TreeCPUTime is the CPU time of a process and of its children so far, also of those that have ended.
func TreeCPUTime(pid int) (time.Duration, error) {
	sum, err := CPUTime(pid)
	if err != nil {
		return 0, err
	}
	_, ended, err := processStat(pid)
	if err != nil {
		return 0, err
	}
	sum += ended
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	for _, dir := range all {
		child, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			return 0, err
		}
		parent, _, err := processStat(child)
		if err != nil || parent != pid {
			continue // it may have ended
		}
		if t, err := CPUTime(child); err == nil {
			sum += t
		}
	}
	return sum, nil
}

// processStat is the parent of a process, and the CPU time of its children that have ended; see
// proc_pid_stat(5).
func processStat(pid int) (parent int, ended time.Duration, err error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	const (
		afterName, parentField, userField, systemField = 3, 4, 16, 17 // numbers of the manual page
		perSecond                                      = 100
	)
	text := string(content)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:]) // a name may have spaces
	var numbers [systemField + 1]int
	for _, n := range []int{parentField, userField, systemField} {
		if numbers[n], err = strconv.Atoi(fields[n-afterName]); err != nil {
			return 0, 0, fmt.Errorf("process %d: %w", pid, err)
		}
	}
	return numbers[parentField], time.Duration(numbers[userField]+numbers[systemField]) * time.Second / perSecond, nil
}
