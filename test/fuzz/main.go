// Command fuzz sends requests to a server, each made from its number, and looks for
// answers that no request may get: a 500 or a panic.
//
//	go -C test run ./fuzz -requests 10000000 -dir ../.fuzz
//
// The server runs in the process, on memory, with the parts of "sailplane serve", and is
// asked by its handler, as its administrator. What it is sent begins with a valid object
// of a resource that it serves, in JSON, YAML, CBOR or protobuf, or with a patch of one, and is
// then damaged: in the tree, in the bytes, in the path, the query and the headers.
//
// It takes hours, and may be stopped: the directory keeps how far it came and what it found,
// and the next run goes on there. The exit status is 1 as long as there are findings.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
}

// finding is a request that got what none may get.
type finding struct {
	Number      uint64 `json:"number"`
	What        string `json:"what"`
	Method      string `json:"method"`
	Path        string `json:"path"`
	ContentType string `json:"contentType,omitempty"`
	Accept      string `json:"accept,omitempty"`
	Body        []byte `json:"body,omitempty"`
	Answer      string `json:"answer"`
}

// campaign is all runs that share a directory.
type campaign struct {
	dir      string
	requests uint64
	workers  int
	next     atomic.Uint64
	mu       sync.Mutex
	found    int
	codes    map[int]uint64
}

func run(ctx context.Context, args []string) (err error) {
	set := flag.NewFlagSet("fuzz", flag.ContinueOnError)
	c := &campaign{codes: map[int]uint64{}}
	set.StringVar(&c.dir, "dir", "../.fuzz", "directory that keeps how far it came, and what it found")
	set.Uint64Var(&c.requests, "requests", 10_000_000, "requests in all, of this and earlier runs")
	set.IntVar(&c.workers, "workers", runtime.GOMAXPROCS(0), "requests at once")
	only := set.Uint64("only", 0, "send only the request of this number, and print the answer")
	if err := set.Parse(args); err != nil {
		return err
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	if err := c.resume(); err != nil {
		return err
	}
	s, err := begin(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	if *only > 0 {
		r := s.make(*only)
		fmt.Printf("%s %s\nContent-Type: %s\nAccept: %s\n\n%s\n\n", r.method, r.path, r.contentType, r.accept, r.body)
		a := s.send(ctx, r)
		fmt.Printf("%d\n%s%s\n", a.code, a.body, a.panicked)
		return nil
	}
	err = c.send(ctx, s)
	return errors.Join(err, c.keep(), c.report())
}

// send sends what is left of the requests.
func (c *campaign) send(ctx context.Context, s *server) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var telling, sending sync.WaitGroup
	telling.Go(func() { c.tell(ctx) })
	begun := c.next.Load()
	for range c.workers {
		sending.Go(func() {
			for ctx.Err() == nil {
				n := c.next.Add(1)
				if n > c.requests {
					c.next.Add(^uint64(0))
					return
				}
				r := s.make(n)
				a := s.send(ctx, r)
				if ctx.Err() != nil { // it was cut off, and is sent again by the next run
					return
				}
				c.look(n, r, a)
			}
		})
	}
	sending.Wait()
	cancel()
	telling.Wait()
	for _, p := range s.log.panics() {
		c.add(finding{What: "panic", Answer: p})
	}
	if c.next.Load() == begun && begun < c.requests {
		return errors.New("nothing was sent")
	}
	return nil
}

// look judges an answer.
func (c *campaign) look(n uint64, r sent, a answer) {
	c.mu.Lock()
	c.codes[a.code]++
	c.mu.Unlock()
	if what := a.wrong(r); what != "" {
		c.add(finding{n, what, r.method, r.path, r.contentType, r.accept, r.body, fmt.Sprintf("%d %.2000s%.2000s", a.code, a.body, a.panicked)})
	}
}

const (
	progressFile = "done"
	findingsFile = "findings.jsonl"
)

// add keeps what was found.
func (c *campaign) add(f finding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.found++
	line, err := json.Marshal(f)
	if err == nil {
		err = appendLine(filepath.Join(c.dir, findingsFile), line)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "fuzz: keep a finding: %v: %+v\n", err, f)
	}
}

func appendLine(name string, line []byte) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// tell says how far it came, and keeps it, until the context ends.
func (c *campaign) tell(ctx context.Context) {
	const often = 10 * time.Second
	tick := time.NewTicker(often)
	defer tick.Stop()
	before := c.next.Load()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			now := c.next.Load()
			fmt.Fprintf(os.Stderr, "%s %d of %d, %.0f a second, %s\n", time.Now().Format(time.TimeOnly), now, c.requests,
				float64(now-before)/often.Seconds(), c.seen())
			before = now
			if err := c.keep(); err != nil {
				fmt.Fprintln(os.Stderr, "fuzz:", err)
			}
		}
	}
}

// seen are the answers by the first digit of their code.
func (c *campaign) seen() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	classes := map[int]uint64{}
	for code, n := range c.codes {
		classes[code/100] += n
	}
	return fmt.Sprintf("answers 2xx %d, 3xx %d, 4xx %d, 5xx %d, none %d; findings %d",
		classes[2], classes[3], classes[4], classes[5], classes[0], c.found)
}

// keep writes how many requests were sent. Those that run now are sent again.
func (c *campaign) keep() error {
	done := c.next.Load()
	done -= min(done, uint64(c.workers))
	if c.next.Load() >= c.requests {
		done = c.requests
	}
	name := filepath.Join(c.dir, progressFile)
	if err := os.WriteFile(name+".new", fmt.Appendf(nil, "%d\n", done), 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// resume reads what earlier runs kept.
func (c *campaign) resume() error {
	content, err := os.ReadFile(filepath.Join(c.dir, progressFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	done, err := strconv.ParseUint(strings.TrimSpace(string(content)), 10, 64)
	if err != nil {
		return fmt.Errorf("%s: %w: remove it to begin again", filepath.Join(c.dir, progressFile), err)
	}
	c.next.Store(done)
	return nil
}

// report says what all runs found.
func (c *campaign) report() error {
	f, err := os.Open(filepath.Join(c.dir, findingsFile))
	if errors.Is(err, os.ErrNotExist) {
		fmt.Printf("%d requests were sent; none was answered by a 500 or a panic\n", c.next.Load())
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	kinds := map[string]int{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var one finding
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return fmt.Errorf("%s: %w", f.Name(), err)
		}
		kinds[one.What]++
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return fmt.Errorf("%d requests were sent; findings are in %s: %v", c.next.Load(), f.Name(), kinds)
}
