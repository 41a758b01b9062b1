package controlplane

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// TakeFunc tells whether a connection whose handshake is completed is the part's, such as by the certificate of the
// client. If so, it takes the connection over, which the part closes in the end. It must not block.
type TakeFunc func(*tls.Conn) (taken bool)

// Connect offers connections to a part before any HTTP is read from them: it may speak another protocol on the
// server's port. The listener asks clients for certificates of the authorities given to [ServerPlan.Trust].
func (p *ServerPlan) Connect(name string, take TakeFunc) {
	p.connections = append(p.connections, named[TakeFunc]{p.root.part, name, take})
}

// checkConnections finds what a part left out.
func checkConnections(all []named[TakeFunc]) (errs []error) {
	for _, c := range all {
		if c.value == nil {
			errs = append(errs, c.failed(errors.New("connections: a function that takes them is required")))
		}
	}
	return errs
}

// sorter is a listener that completes TLS handshakes, and hands the connections of parts to
// them. It returns the others.
type sorter struct {
	net.Listener
	config  *tls.Config
	parts   []named[TakeFunc]
	timeout time.Duration // of a handshake; 0: no limit

	sorted  chan accepted
	closed  <-chan struct{}
	end     context.CancelFunc
	running sync.WaitGroup
}

// accepted is what Accept returns.
type accepted struct {
	conn net.Conn
	err  error
}

func newSorter(l net.Listener, config *tls.Config, parts []named[TakeFunc], timeout time.Duration) *sorter {
	life, end := context.WithCancel(context.Background())
	s := &sorter{
		Listener: l, config: config.Clone(), parts: parts, // net/http writes to the other one
		timeout: timeout, sorted: make(chan accepted), closed: life.Done(), end: end,
	}
	s.running.Go(func() { s.accept(life) })
	return s
}

// accept shakes hands with everybody at once: nobody waits for one who is slow. It ends with
// Close alone: who accepts knows which errors pass, such as too many open files, and waits
// before the next Accept.
func (s *sorter) accept(life context.Context) {
	for life.Err() == nil {
		c, err := s.Listener.Accept()
		if err != nil {
			s.give(accepted{err: err})
			continue
		}
		s.running.Go(func() { s.sort(life, c) })
	}
}

// give returns something from Accept, unless the listener is closed before.
func (s *sorter) give(a accepted) (given bool) {
	select {
	case s.sorted <- a:
		return true
	case <-s.closed:
		return false
	}
}

// sort completes a handshake, and hands the connection to whose it is. A panic about what a
// stranger sent ends the stranger's connection, as in net/http.
func (s *sorter) sort(life context.Context, c net.Conn) {
	defer func() {
		if recover() != nil {
			_ = c.Close()
		}
	}()
	secured := tls.Server(c, s.config)
	if err := s.handshake(life, secured); err != nil {
		answerPlain(err)
		_ = c.Close() // the error is the client's business
		return
	}
	for _, p := range s.parts {
		if p.value(secured) {
			return
		}
	}
	if !s.give(accepted{conn: secured}) {
		_ = secured.Close() // nobody serves it any more
	}
}

func (s *sorter) handshake(life context.Context, c *tls.Conn) error {
	if s.timeout > 0 {
		late, cancel := context.WithTimeout(life, s.timeout)
		defer cancel()
		life = late
	}
	return c.HandshakeContext(life)
}

// answerPlain tells a client that speaks HTTP without TLS, as net/http does.
func answerPlain(err error) {
	var header tls.RecordHeaderError
	if !errors.As(err, &header) || header.Conn == nil {
		return
	}
	switch string(header.RecordHeader[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO":
		_, _ = io.WriteString(header.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")
	}
}

// Accept implements net.Listener. An error is that of the listener below, as it is.
func (s *sorter) Accept() (net.Conn, error) {
	select {
	case a := <-s.sorted:
		return a.conn, a.err
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener: handshakes end.
func (s *sorter) Close() error {
	s.end()
	err := s.Listener.Close()
	s.running.Wait()
	return err
}
