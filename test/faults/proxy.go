package faults

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// slowest is the longest that a piece of data is delayed.
	slowest = 10 * time.Millisecond
	// holding is how long answers are held back before a connection is cut.
	holding = 10 * time.Millisecond
)

// proxy passes connections on to a socket, for better or worse.
type proxy struct {
	listener net.Listener
	target   string
	delay    atomic.Int64 // the longest that a piece of data waits, in nanoseconds
	hold     atomic.Bool  // answers are read, and not passed on

	mu      sync.Mutex
	conns   map[net.Conn]bool
	running sync.WaitGroup
}

func startProxy(ctx context.Context, target string) (*proxy, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: listener, target: target, conns: map[net.Conn]bool{}}
	p.running.Go(p.accept)
	return p, nil
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		from, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		} else if err != nil {
			continue
		}
		to, err := net.Dial("unix", p.target)
		if err != nil {
			_ = from.Close() // the client is told by that
			continue
		}
		p.mu.Lock()
		p.conns[from], p.conns[to] = true, true
		p.mu.Unlock()
		p.running.Go(func() { p.pass(to, from, nil) })
		p.running.Go(func() { p.pass(from, to, &p.hold) })
	}
}

// pass passes data on until either side is closed, and then closes both.
func (p *proxy) pass(to, from net.Conn, hold *atomic.Bool) {
	defer p.forget(to, from)
	piece := make([]byte, 32<<10)
	for {
		n, err := from.Read(piece)
		if longest := p.delay.Load(); longest > 0 {
			time.Sleep(time.Duration(rand.Int64N(longest)))
		}
		if n > 0 && (hold == nil || !hold.Load()) {
			if _, err := to.Write(piece[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *proxy) forget(conns ...io.Closer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close() // the other direction may have closed it
		delete(p.conns, c.(net.Conn))
	}
}

// cut closes every connection.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close() // whoever passes data on finds out
	}
}

// cutAfterRequests closes every connection, after a time in which requests pass
// and answers do not.
func (p *proxy) cutAfterRequests() {
	p.hold.Store(true)
	time.Sleep(holding)
	p.cut()
	p.hold.Store(false)
}

// heal ends all delays.
func (p *proxy) heal() { p.delay.Store(0) }

func (p *proxy) stop() {
	_ = p.listener.Close() // it is closed once
	p.cut()
	p.running.Wait()
}
