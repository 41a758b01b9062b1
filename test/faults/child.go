package faults

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sailplane-dev/sailplane/test/faults/history"
	"github.com/sailplane-dev/sailplane/test/faults/wire"
)

// limit is how long anything may take before it counts as hanging.
const limit = 2 * time.Minute

// errEnded is what requests get from a process that ended.
var errEnded = errors.New("the server ended")

// child is a process with a storage.
type child struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	in     *wire.Writer
	pid    int // of the server, which may run below another program
	ready  chan struct{}
	exited chan struct{}
	stderr tail
	// expected: somebody ended it, or does what follows when it ended by itself.
	expected atomic.Bool
	// deliver gets the events of its watch, and nil when a watch ended.
	deliver func(*history.Op)

	mu      sync.Mutex
	waiting map[int64]chan history.Op
	watch   int64 // the ID of the watch
	last    int64 // the last ID
	over    bool
}

// startChild runs a server and returns when its storage runs.
func startChild(ctx context.Context, cmd *exec.Cmd, deliver func(*history.Op)) (*child, error) {
	c := &child{
		cmd: cmd, deliver: deliver, waiting: map[int64]chan history.Op{},
		ready: make(chan struct{}), exited: make(chan struct{}),
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.stdin, c.in, cmd.Stderr = stdin, wire.NewWriter(stdin), &c.stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go c.read(stdout)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case <-c.ready:
		return c, nil
	case <-c.exited:
		return nil, fmt.Errorf("the server did not start: %v: %s", cmd.ProcessState, c.stderr.String())
	case <-ctx.Done():
		c.kill()
		return nil, fmt.Errorf("the server did not start: %w: %s", context.Cause(ctx), c.stderr.String())
	}
}

// read reads answers until there are no more, and then waits for the process.
func (c *child) read(stdout io.Reader) {
	lines := json.NewDecoder(bufio.NewReader(stdout))
	for {
		var a wire.Answer
		if lines.Decode(&a) != nil {
			break // the end, in the middle of a line where it was killed
		}
		if a.PID != 0 {
			c.pid = a.PID
			close(c.ready)
			continue
		}
		c.answer(&a)
	}
	c.mu.Lock()
	c.over = true
	for _, each := range c.waiting {
		close(each)
	}
	c.mu.Unlock()
	_ = c.cmd.Wait() // the state tells how it ended
	close(c.exited)
}

func (c *child) answer(a *wire.Answer) {
	c.mu.Lock()
	waiting, found := c.waiting[a.ID]
	isWatch := a.ID == c.watch
	if !a.Event {
		delete(c.waiting, a.ID)
	}
	c.mu.Unlock()
	switch {
	case a.Event:
		c.deliver(&a.Op)
	case found:
		waiting <- a.Op
	case isWatch:
		c.deliver(nil)
	}
}

// do asks for an operation and returns its answer, or an error when there is
// none and never will be one.
func (c *child) do(r wire.Request) (history.Op, error) {
	answer := make(chan history.Op, 1)
	c.mu.Lock()
	if c.over {
		c.mu.Unlock()
		return history.Op{}, errEnded
	}
	c.last++
	r.ID = c.last
	c.waiting[r.ID] = answer
	c.mu.Unlock()
	// Whether this fails or not: when the process ends, the channel is closed.
	_ = c.in.Send(r)
	op, answered := <-answer
	if !answered {
		return history.Op{}, errEnded
	}
	return op, nil
}

// observe begins the watch, from a revision on.
func (c *child) observe(prefix string, revision int64) {
	c.mu.Lock()
	c.last++
	c.watch = c.last
	r := wire.Request{ID: c.watch, Kind: wire.Watch, Key: prefix, Revision: revision}
	c.mu.Unlock()
	_ = c.in.Send(r) // to a process that ended: the next one has a watch of its own
}

// kill ends the server so that it cannot react.
func (c *child) kill() {
	c.expected.Store(true)
	if c.pid != 0 && c.pid != c.cmd.Process.Pid {
		if p, err := os.FindProcess(c.pid); err == nil {
			_ = p.Kill() // it may have ended
		}
	} else {
		_ = c.cmd.Process.Kill() // it may have ended
	}
	_ = c.stdin.Close() // ends a server whose own process is not known yet
	<-c.exited
}

// stop has the server stop in order.
func (c *child) stop() error {
	c.expected.Store(true)
	_ = c.stdin.Close() // it may have ended
	select {
	case <-c.exited:
	case <-time.After(limit):
		c.kill()
		return fmt.Errorf("the server did not stop within %v: %s", limit, c.stderr.String())
	}
	if !c.cmd.ProcessState.Success() {
		return fmt.Errorf("the server stopped with %v: %s", c.cmd.ProcessState, c.stderr.String())
	}
	return nil
}

// tail keeps the last of what is written to it.
type tail struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.text.Len() > 1<<16 {
		t.text.Next(t.text.Len() - 1<<15)
	}
	return t.text.Write(b)
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}
