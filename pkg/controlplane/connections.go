package controlplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Connections are those of a part that speaks another protocol than HTTP on the server's
// port. It knows them by the certificate of the client.
type Connections struct {
	// Are tells whether a connection whose handshake is completed is the part's. It is
	// called for each connection, and must not block. Required.
	Are func(tls.ConnectionState) bool
	// Serve takes such a connection over, and returns at once. The part closes it in the
	// end. Required.
	Serve func(*tls.Conn)
}

// Connect hands connections to a part before any HTTP is read from them. The listener asks
// clients for certificates of the authorities given to [ServerPlan.Trust].
func (p *ServerPlan) Connect(name string, c Connections) {
	p.connections = append(p.connections, named[Connections]{p.root.part, name, c})
}

// checkConnections finds what a part left out.
func checkConnections(all []named[Connections]) (errs []error) {
	for _, c := range all {
		if c.value.Are == nil || c.value.Serve == nil {
			errs = append(errs, c.failed(errors.New("connections: Are and Serve are both required")))
		}
	}
	return errs
}

// sorter is a listener that completes TLS handshakes, and hands the connections of parts to
// them. It returns the others.
type sorter struct {
	net.Listener
	config  *tls.Config
	parts   []named[Connections]
	timeout time.Duration // of a handshake; 0: none

	sorted  chan net.Conn
	life    context.Context //nolint:containedctx // of the handshakes
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
}

func newSorter(l net.Listener, config *tls.Config, parts []named[Connections], timeout time.Duration) *sorter {
	s := &sorter{Listener: l, config: config, parts: parts, timeout: max(timeout, 0), sorted: make(chan net.Conn)}
	s.life, s.cancel = context.WithCancelCause(context.Background())
	s.running.Go(s.accept)
	return s
}

// accept shakes hands with everybody at once: nobody waits for one who is slow.
func (s *sorter) accept() {
	for {
		c, err := s.Listener.Accept()
		if err != nil {
			s.cancel(err)
			return
		}
		s.running.Go(func() { s.sort(c) })
	}
}

// sort completes a handshake, and hands the connection to whose it is.
func (s *sorter) sort(c net.Conn) {
	secured := tls.Server(c, s.config)
	ctx := s.life
	if s.timeout > 0 {
		late, cancel := context.WithTimeout(ctx, s.timeout)
		defer cancel()
		ctx = late
	}
	if err := secured.HandshakeContext(ctx); err != nil {
		answerPlain(err)
		_ = c.Close() // the error is the client's business
		return
	}
	for _, p := range s.parts {
		if p.value.Are(secured.ConnectionState()) {
			p.value.Serve(secured)
			return
		}
	}
	select {
	case s.sorted <- secured:
	case <-s.life.Done():
		_ = secured.Close() // nobody serves it any more
	}
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

// Accept implements net.Listener.
func (s *sorter) Accept() (net.Conn, error) {
	select {
	case c := <-s.sorted:
		return c, nil
	case <-s.life.Done():
		return nil, fmt.Errorf("accept: %w", context.Cause(s.life))
	}
}

// Close implements net.Listener: handshakes end.
func (s *sorter) Close() error {
	err := s.Listener.Close()
	s.cancel(net.ErrClosed)
	s.running.Wait()
	return err
}
