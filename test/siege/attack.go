package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

const (
	// attackCommand makes this program an attacker.
	attackCommand = "attack"
	// baseline is the attack that is none, nothing is less than that, and together is all that are.
	baseline = "small gets"
	nothing  = "nothing"
	together = "together"
)

// order is what attackers are told.
type order struct {
	Attack  string `json:"attack"`
	Clients int    `json:"clients"`
	Target  target `json:"target"`
}

// attackers is a process that attacks, at nice 19: it leaves the processors to the
// server and to the tenant.
type attackers struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	counted map[string]int // answers by status code, or why there was none
}

// attackers starts the process, and returns when all bodies are made.
func (o options) attackers(ctx context.Context, w *world, name string) (*attackers, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	a := &attackers{command: exec.CommandContext(ctx, "nice", "-n", "19", self, attackCommand)}
	a.command.Stderr = os.Stderr
	if a.in, err = a.command.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := a.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	a.out = bufio.NewReader(out)
	if err := a.command.Start(); err != nil {
		return nil, err
	}
	if err := json.NewEncoder(a.in).Encode(order{name, o.clients, w.target}); err != nil {
		return nil, errors.Join(err, a.end())
	}
	if _, err := a.out.ReadString('\n'); err != nil { // they are ready
		return nil, errors.Join(fmt.Errorf("the attackers ended: %w", err), a.end())
	}
	return a, nil
}

// begin lets them loose.
func (a *attackers) begin() error {
	_, err := fmt.Fprintln(a.in, "begin")
	return err
}

// end stops them.
func (a *attackers) end() error {
	_ = a.in.Close() // they end with their input
	content, err := io.ReadAll(a.out)
	err = errors.Join(err, a.command.Wait())
	if err == nil && len(content) > 0 {
		err = json.Unmarshal(content, &a.counted)
	}
	return err
}

// attack is one way to hurt a server.
type attack struct {
	// shots are requests that are sent over and over.
	shots func(target) []shot
	// raw is what is more than requests, when it is prepared. It ends with the context.
	raw func(a *army) (func(context.Context), error)
	// http1 gives each client a connection with one request at a time.
	http1 bool
}

// attackNames are those of the attacks, without what is none.
func attackNames() []string {
	all := attacks()
	delete(all, baseline)
	delete(all, nothing)
	return slices.Sorted(maps.Keys(all))
}

// army is the process that attacks.
type army struct {
	target
	clients int
	mu      sync.Mutex
	counted map[string]int
}

// assault is the whole life of that process.
func assault(ctx context.Context, in io.Reader, out io.Writer) error {
	from := bufio.NewReader(in)
	line, err := from.ReadBytes('\n')
	if err != nil {
		return err
	}
	var o order
	if err := json.Unmarshal(line, &o); err != nil {
		return err
	}
	a := &army{target: o.Target, clients: o.Clients, counted: map[string]int{}}
	names := []string{o.Attack}
	if o.Attack == together {
		names = attackNames()
		a.clients = max(1, o.Clients/len(names))
	}
	var ready []func(context.Context)
	for _, name := range names {
		chosen, known := attacks()[name]
		if !known {
			return fmt.Errorf("there is no attack %q", name)
		}
		prepared, err := a.prepare(chosen)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		ready = append(ready, prepared...)
	}
	fmt.Fprintln(out, "ready")
	if _, err := from.ReadString('\n'); err != nil {
		return nil // it was called off
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, from) // its end is the sign
		cancel()
	}()
	var all sync.WaitGroup
	for _, f := range ready {
		all.Go(func() { f(ctx) })
	}
	all.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	return json.NewEncoder(out).Encode(a.counted)
}

// prepare makes what each client does.
func (a *army) prepare(chosen attack) ([]func(context.Context), error) {
	if chosen.raw != nil {
		f, err := chosen.raw(a)
		return []func(context.Context){f}, err
	}
	shots := chosen.shots(a.target)
	var next atomic.Int64
	var all []func(context.Context)
	for range a.clients {
		all = append(all, func(ctx context.Context) {
			client := a.client(!chosen.http1, nil)
			for ctx.Err() == nil {
				a.fire(ctx, client, shots[int(next.Add(1))%len(shots)])
			}
		})
	}
	return all, nil
}

func (a *army) count(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counted[what]++
}

// said shortens an error to what several have in common.
func said(err error) string {
	text := err.Error()
	for _, known := range []string{"connection reset", "connection refused", "EOF", "GOAWAY", "broken pipe", "timeout", "deadline exceeded", "tls:", "stream error"} {
		if strings.Contains(text, known) {
			return known
		}
	}
	return "error"
}
