package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// stage is where a script has its programs.
type stage struct {
	logs     string // the folder of their logs
	programs []*process
}

type stageKey struct{}

func on(ts *testscript.TestScript) *stage { return ts.Value(stageKey{}).(*stage) }

// process is a program that a script started. It runs until the script stops it.
type process struct {
	name  string
	cmd   *exec.Cmd
	log   *os.File
	ended chan struct{}
	// display is nil for a program without a terminal.
	display *display
}

// launch starts a program whose output goes to the log.
func launch(name string, cmd *exec.Cmd, log *os.File) (*process, error) {
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{name: name, cmd: cmd, log: log, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // its state says how it ended
		close(p.ended)
	}()
	return p, nil
}

// stop ends the program, which has a while to do so. How it ends is its own affair.
func (p *process) stop() {
	signal := syscall.SIGTERM
	if p.display != nil {
		signal = syscall.SIGHUP // as when the window of a terminal is closed
	}
	_ = p.cmd.Process.Signal(signal) // fails when it has ended
	late := time.AfterFunc(20*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	<-p.ended
	_ = p.log.Close()
}

// output is what the program has logged so far.
func (p *process) output() string {
	text, err := os.ReadFile(p.log.Name())
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}

// alive fails when a program has ended that nobody stopped.
func (s *stage) alive() error {
	for _, p := range s.programs {
		select {
		case <-p.ended:
			return fmt.Errorf("%s ended by itself (%v); its log ends with\n%s", p.name, p.cmd.ProcessState, lastLines(p.output(), 20))
		default:
		}
	}
	return nil
}

// end stops all programs, the last one first.
func (s *stage) end() {
	for _, p := range slices.Backward(s.programs) {
		p.stop()
	}
	s.programs = nil
}

// named finds a program that runs.
func (s *stage) named(name string) (*process, error) {
	for _, p := range s.programs {
		if p.name == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("no program is started as %q", name)
}
