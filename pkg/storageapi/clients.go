package storageapi

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/sailplane-dev/sailplane/pkg/internal/etcdserve"
)

const (
	// waitingConnections is how many connections may wait for the server that serves them.
	waitingConnections = 64
	// sip is how much is read at a time of a tenant that asks for more than it may: many small calls fit in.
	sip = 1 << 10
)

// connection is one of a tenant, with its handshake completed.
type connection struct {
	*tls.Conn
	tenant *tenant
	ends   time.Time // the certificate
	left   sync.Once
	leave  func(*connection)
	closed chan struct{}

	mu   sync.Mutex
	held map[*held]struct{}
}

// held is something that a call has until its answer is sent.
type held struct {
	since   time.Time
	release func()
}

// hold has something released when it is told to, or when the connection ends.
func (c *connection) hold(release func()) (done func()) {
	h := &held{time.Now(), sync.OnceFunc(release)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[h] = struct{}{}
	return func() {
		c.mu.Lock()
		delete(c.held, h)
		c.mu.Unlock()
		h.release()
	}
}

// holdsSince tells whether an answer has not been taken since then.
func (c *connection) holdsSince(then time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for h := range c.held {
		if h.since.Before(then) {
			return true
		}
	}
	return false
}

// Read implements net.Conn. What comes next waits while the tenant asks for more than it may.
func (c *connection) Read(b []byte) (int, error) {
	if wait := c.tenant.ahead(time.Now()); wait > 0 {
		late := time.NewTimer(wait)
		defer late.Stop()
		select {
		case <-late.C:
		case <-c.closed:
		}
		b = b[:min(len(b), sip)]
	}
	n, err := c.Conn.Read(b)
	c.tenant.hear(time.Now(), n)
	return n, err
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.left.Do(c.end)
	return c.Conn.Close()
}

func (c *connection) end() {
	close(c.closed)
	c.mu.Lock()
	for h := range c.held {
		h.release()
	}
	c.mu.Unlock()
	c.leave(c)
}

// cut ends the connection at once: a client that does not read is not told.
func (c *connection) cut() {
	c.left.Do(c.end)
	_ = c.NetConn().Close() // its calls end, and say so
}

// queue is a listener of connections that somebody else has accepted.
type queue struct {
	connections chan net.Conn
	closed      chan struct{}
	once        sync.Once
}

func newQueue() *queue {
	return &queue{connections: make(chan net.Conn, waitingConnections), closed: make(chan struct{})}
}

// put hands over a connection. One too many is closed: its client comes again.
func (q *queue) put(c net.Conn) {
	select {
	case <-q.closed:
		_ = c.Close() // nobody waits for it
		return
	default:
	}
	select {
	case q.connections <- c:
	default:
		_ = c.Close()
	}
}

// Accept implements net.Listener.
func (q *queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.connections:
		return c, nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener: what nobody has accepted is closed.
func (q *queue) Close() error {
	q.once.Do(func() { close(q.closed) })
	for {
		select {
		case c := <-q.connections:
			_ = c.Close()
		default:
			return nil
		}
	}
}

// Addr implements net.Listener.
func (q *queue) Addr() net.Addr { return queued{} }

type queued struct{}

// Network implements net.Addr.
func (queued) Network() string { return "tcp" }

// String implements net.Addr.
func (queued) String() string { return "the listener of the server" }

// handshaken are the credentials of connections whose handshake is completed.
type handshaken struct{}

var _ credentials.TransportCredentials = handshaken{}

// session is who is at the other end of a connection.
type session struct {
	credentials.CommonAuthInfo
	connection *connection
}

// AuthType implements credentials.AuthInfo.
func (session) AuthType() string { return "tls" }

// ServerHandshake implements credentials.TransportCredentials.
func (handshaken) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	of, ok := c.(*connection)
	if !ok {
		return nil, nil, errors.New("a connection of no tenant")
	}
	return c, session{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, of}, nil
}

// ClientHandshake implements credentials.TransportCredentials.
func (handshaken) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("a server has no client")
}

// Info implements credentials.TransportCredentials.
func (handshaken) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements credentials.TransportCredentials.
func (h handshaken) Clone() credentials.TransportCredentials { return h }

// OverrideServerName implements credentials.TransportCredentials.
func (handshaken) OverrideServerName(string) error { return nil }

// caller is the connection of who calls, or nil.
func caller(ctx context.Context) *connection {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	s, _ := p.AuthInfo.(session)
	return s.connection
}

// viewOf is the view of who calls.
func viewOf(ctx context.Context) (*etcdserve.View, error) {
	c := caller(ctx)
	if c == nil || time.Now().After(c.ends) || c.tenant.isGone() {
		return nil, rpctypes.ErrGRPCPermissionDenied
	}
	return c.tenant.sees(ctx)
}

// begin takes a call in.
func begin(ctx context.Context) error {
	if c := caller(ctx); c != nil {
		return c.tenant.begin(ctx)
	}
	return nil // it is refused when it is known what it asks for
}

// asked counts a request of a stream.
func asked(ctx context.Context) {
	if c := caller(ctx); c != nil {
		c.tenant.ask(time.Now(), 1)
	}
}
