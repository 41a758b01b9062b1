package controlplane

import (
	"net"
	"runtime"
)

// gathering is a listener whose connections gather what is written to them at
// about the same time. An event goes to many watches at once, of which a client
// has several on its connection: with a packet for each of them, most of what an
// event costs is the system calls.
type gathering struct{ net.Listener }

// Accept implements net.Listener.
func (l gathering) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return gatheringConn{c}, nil
}

type gatheringConn struct{ net.Conn }

// littleToWrite is less than what the HTTP/2 server gathers before it writes,
// 4 KiB in a TLS record: it waits for no more then.
const littleToWrite = 4 << 10

// Write implements net.Conn. It is called by the goroutine that flushes: while it
// lets others run first, what they have to say is gathered for the next write.
// With nothing else to do that takes no time.
func (c gatheringConn) Write(b []byte) (int, error) {
	if len(b) < littleToWrite {
		runtime.Gosched()
	}
	return c.Conn.Write(b)
}
