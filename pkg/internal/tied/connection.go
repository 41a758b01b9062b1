package tied

import (
	"bytes"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// window is how many bytes a client may send before somebody reads them.
const window = 64 << 10

// idle is how long nothing may come or go before a connection ends, as at a kubelet
// (streamingConnectionIdleTimeout).
const idle = 4 * time.Hour

// Connection is one whose other side can send a little before somebody reads it, and that
// closes when it is idle.
type Connection struct {
	net.Conn
	done chan struct{} // closed when nothing is received any more

	idle *time.Timer
	busy atomic.Int64 // nanoseconds since 1970, when something came or went

	mu       sync.Mutex
	changed  sync.Cond
	received bytes.Buffer
	err      error // after what was received
	closed   bool
}

// Receiving starts to receive what comes from r, and calls end when nothing more does. It
// stops when the connection is closed.
func Receiving(conn net.Conn, r io.Reader, end func()) *Connection {
	c := &Connection{Conn: conn, done: make(chan struct{})}
	c.changed.L = &c.mu
	c.busy.Store(time.Now().UnixNano())
	c.mu.Lock() // rest reads the timer
	c.idle = time.AfterFunc(idle, c.rest)
	c.mu.Unlock()
	go c.receive(r, end)
	return c
}

// receive reads until an error, which is the end.
func (c *Connection) receive(r io.Reader, end func()) {
	defer close(c.done)
	defer end()
	for p := make([]byte, window/2); ; {
		n, err := r.Read(p)
		c.busy.Store(time.Now().UnixNano())
		if !c.add(p[:n], err) {
			return
		}
	}
}

// add adds what was read when there is room for it, and tells whether more may come.
func (c *Connection) add(p []byte, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.received.Len()+len(p) > window && !c.closed {
		c.changed.Wait()
	}
	c.received.Write(p)
	c.err = err
	c.changed.Broadcast()
	return err == nil && !c.closed
}

// Read implements net.Conn.
func (c *Connection) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.received.Len() == 0 {
		switch {
		case c.closed:
			return 0, io.EOF // upstream logs any other error, and this is how streams end
		case c.err != nil:
			return 0, c.err
		}
		c.changed.Wait()
	}
	defer c.changed.Broadcast()
	return c.received.Read(p)
}

// Write implements net.Conn.
func (c *Connection) Write(p []byte) (int, error) {
	c.busy.Store(time.Now().UnixNano())
	return c.Conn.Write(p)
}

// rest closes a connection that is idle, and looks again later at one that was busy.
func (c *Connection) rest() {
	left := idle - time.Since(time.Unix(0, c.busy.Load()))
	c.mu.Lock()
	again := left > 0 && !c.closed
	if again {
		c.idle.Reset(left)
	}
	c.mu.Unlock()
	if !again {
		_ = c.Close()
	}
}

// Close implements net.Conn.
func (c *Connection) Close() error {
	c.mu.Lock()
	c.closed = true
	c.idle.Stop()
	c.changed.Broadcast()
	c.mu.Unlock()
	return c.Conn.Close()
}
