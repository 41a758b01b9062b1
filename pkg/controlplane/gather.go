package controlplane

import (
	"net"
	"runtime"
	"time"
)

// coalescingListener is a listener whose connections gather writes that come at about the
// same time. An event goes to many watches at once, several of them on one client's
// connection: with a packet for each, most of an event's cost is system calls. 100,000
// events to 1,000 watchers take 2.71 CPU s in place of 3.05 (bench -only watch).
type coalescingListener struct{ net.Listener }

// Accept implements net.Listener.
func (l coalescingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &gatheringConn{Conn: c}, nil
}

type gatheringConn struct {
	net.Conn
	little time.Time // when the last write began if it was a little one; TLS writes one after another
}

// NetConn returns the connection below.
func (c *gatheringConn) NetConn() net.Conn { return c.Conn }

const (
	// littleToWrite is the size below which a write waits for more. The HTTP/2 server
	// writes what it gathers at 4 KiB, in a TLS record that is larger.
	littleToWrite = 4 << 10
	// soonAfter is how soon after another a write comes at about the same time. What comes
	// alone does not wait, and nor does the end of what is large: on a busy server that
	// takes long.
	soonAfter = 5 * time.Millisecond
)

// Write implements net.Conn. The goroutine that flushes calls it: it lets others
// run first, and their output is gathered for the next write. When no other can
// run, that takes no time.
func (c *gatheringConn) Write(b []byte) (int, error) {
	if len(b) >= littleToWrite {
		c.little = time.Time{}
		return c.Conn.Write(b)
	}
	before := c.little
	if c.little = time.Now(); c.little.Sub(before) < soonAfter {
		runtime.Gosched()
	}
	return c.Conn.Write(b)
}
