package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// sampleEvery is how often the memory of a process is looked at.
const sampleEvery = 20 * time.Millisecond

// effort is what a command took, until it ended by itself.
type effort struct {
	wall, cpu time.Duration
	footprint
}

// footprint is the most memory that a process was seen with, in bytes.
type footprint struct {
	// anonymous is what is not of a file, and resident all.
	anonymous, resident float64
}

// watched runs Sailplane's binary and watches its memory. It is an error if that fails.
func (l *lab) watched(ctx context.Context, args ...string) (effort, error) {
	var e effort
	p, err := begin(exec.Command(l.program("sailplane"), args...))
	if err != nil {
		return e, err
	}
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		if err := e.sample(p.cmd.Process.Pid); err != nil {
			return e, errors.Join(err, p.stop())
		}
		select {
		case <-p.done:
			e.wall, e.cpu = time.Since(p.begun), p.cmd.ProcessState.UserTime()+p.cmd.ProcessState.SystemTime()
			if p.err != nil {
				return e, fmt.Errorf("sailplane %s: %w\n%s", strings.Join(args, " "), p.err, p.log)
			}
			return e, nil
		case <-ctx.Done():
			return e, errors.Join(ctx.Err(), p.stop())
		case <-tick.C:
		}
	}
}

// whilst watches the memory of a process that runs longer than f does.
func whilst(p *process, f func() error) (footprint, error) {
	var found footprint
	over, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		tick := time.NewTicker(sampleEvery)
		defer tick.Stop()
		for {
			if err := found.sample(p.cmd.Process.Pid); err != nil {
				ended <- err
				return
			}
			select {
			case <-over:
				ended <- nil
				return
			case <-tick.C:
			}
		}
	}()
	err := f()
	close(over)
	return found, errors.Join(err, <-ended)
}

// sample looks at a process. The kernel's own peak (VmHWM) misses nothing between two looks; that of getrusage(2)
// would be that of the process which started it, if that was larger. A process that has ended has none of both.
func (f *footprint) sample(pid int) error {
	name := fmt.Sprintf("/proc/%d/status", pid)
	b, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(b)) {
		field, value, _ := strings.Cut(line, ":")
		var most *float64
		switch field {
		case "RssAnon":
			most = &f.anonymous
		case "VmHWM":
			most = &f.resident
		default:
			continue
		}
		kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
		if err != nil {
			return fmt.Errorf("%s: %q: %w", name, line, err)
		}
		*most = max(*most, kib*1024)
	}
	return nil
}
