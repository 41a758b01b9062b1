package loopback

import (
	"io"
	"sync"
)

// bufferSize is how many bytes a handler may be ahead of its client, as the
// buffers and windows of a connection allow. Without any, a watch whose client
// is busy for a moment would be ended by the watch cache as too slow.
const bufferSize = 1 << 20

// pipe is a bounded buffer between a handler that writes and a client that reads.
type pipe struct {
	mu     sync.Mutex
	moved  sync.Cond
	data   []byte
	ended  error // what Read returns after the data
	closed bool  // by the reader
}

func newPipe() *pipe {
	p := &pipe{}
	p.moved.L = &p.mu
	return p
}

// Write implements io.Writer. It waits while the buffer is full.
func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.data) >= bufferSize && !p.closed && p.ended == nil {
		p.moved.Wait()
	}
	if p.closed || p.ended != nil {
		return 0, io.ErrClosedPipe
	}
	p.data = append(p.data, b...)
	p.moved.Broadcast()
	return len(b), nil
}

// Read implements io.Reader. It waits for data.
func (p *pipe) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.data) == 0 && !p.closed && p.ended == nil {
		p.moved.Wait()
	}
	switch {
	case p.closed:
		return 0, io.ErrClosedPipe
	case len(p.data) == 0:
		return 0, p.ended
	}
	n := copy(b, p.data)
	if p.data = p.data[n:]; len(p.data) == 0 {
		p.data = nil // an idle watch keeps no buffer
	}
	p.moved.Broadcast()
	return n, nil
}

// Close is for the reader: it wants no more data.
func (p *pipe) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed, p.data = true, nil
	p.moved.Broadcast()
	return nil
}

// end is for the writer: after the data, reads return the error. The first call
// counts.
func (p *pipe) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended == nil {
		p.ended = err
	}
	p.moved.Broadcast()
}
