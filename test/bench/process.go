package main

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// process is a program that was started, and is stopped by whoever started it.
type process struct {
	cmd   *exec.Cmd
	begun time.Time
	log   *buffer
	// done is closed when the program has ended; err says how.
	done chan struct{}
	err  error
}

// begin starts a program. What it prints is kept for errors, but for what the
// command already sends elsewhere.
func begin(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, log: &buffer{}, done: make(chan struct{})}
	cmd.Stderr = p.log
	if cmd.Stdout == nil {
		cmd.Stdout = p.log
	}
	p.begun = time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// patience is how long a server may take to start or to stop.
const patience = 60 * time.Second

// bySignal is the exit code os/exec gives a process that a signal ended.
const bySignal = -1

// stop ends the program in order.
func (p *process) stop() error {
	if err := p.ended(); err != nil {
		return err
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
		// etcd stops in order, then ends itself with the signal it got.
		if exit := (&exec.ExitError{}); errors.As(p.err, &exit) && exit.ExitCode() == bySignal {
			return nil
		}
		if p.err != nil {
			return fmt.Errorf("%s: stopped: %w\n%s", p.cmd.Path, p.err, p.log)
		}
		return nil
	case <-time.After(patience):
		err := p.cmd.Process.Kill()
		<-p.done
		return errors.Join(fmt.Errorf("%s: did not stop within %v\n%s", p.cmd.Path, patience, p.log), err)
	}
}

// ended is an error when the program has ended by itself.
func (p *process) ended() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s: ended: %w\n%s", p.cmd.Path, p.err, p.log)
	default:
		return nil
	}
}

// buffer keeps the end of what a program prints.
type buffer struct {
	mu sync.Mutex
	b  []byte
}

const keptOutput = 4 << 10

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.b = append(b.b, p...)
	if over := len(b.b) - keptOutput; over > 0 {
		b.b = bytes.Clone(b.b[over:])
	}
	return len(p), nil
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.b)
}
