// Package addresses bounds what clients of one address may take of a server before
// anybody knows who they are: connections, TLS handshakes and failed logins. An address
// is one of IPv4, or a /64 network of IPv6, which is what one customer gets.
// https://datatracker.ietf.org/doc/html/rfc6177
package addresses

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"

	"github.com/sailplane-dev/sailplane/pkg/internal/pauses"
	"github.com/sailplane-dev/sailplane/pkg/internal/turns"
)

// remembered is how many addresses without a connection a table knows, each with some
// 300 bytes. Those with a connection are as many as there are connections.
const remembered = 16 << 10

// heldConnections is how many connections that are refused are held back for an address, and
// allHeldConnections for all: each is a file of the process.
const heldConnections, allHeldConnections = 512, 1024

// Limits are those of one address. A negative number is no limit.
type Limits struct {
	// Connections may be open at once.
	Connections int
	// HandshakesPerSecond may begin, and HandshakeBurst at once.
	HandshakesPerSecond float64
	HandshakeBurst      int
	// FailuresPerSecond is how many requests may fail to authenticate, and FailureBurst
	// how many at once.
	FailuresPerSecond float64
	FailureBurst      int
	// Trusted are networks without limits.
	Trusted []netip.Prefix
}

// Limit is why something was refused, as metrics name it.
type Limit string

// What the limits are of.
const (
	Connections Limit = "connections"
	Handshakes  Limit = "handshakes"
	Failures    Limit = "failures"
)

// Table counts what each address takes.
type Table struct {
	limits  Limits
	now     func() time.Time
	refused func(Limit)

	mu        sync.Mutex
	connected map[netip.Prefix]*client
	idle      *lru.Cache // of *client by netip.Prefix
}

// client is what is known of one address.
type client struct {
	connections          int
	handshakes, failures *rate.Limiter // nil before the first one
}

// New returns an empty table. It calls refused for each thing that it refuses.
func New(limits Limits, now func() time.Time, refused func(Limit)) *Table {
	return &Table{
		limits: limits, now: now, refused: refused,
		connected: map[netip.Prefix]*client{}, idle: lru.New(remembered),
	}
}

// Enter counts a new connection of an address, and tells whether it may stay. Then call
// Leave when it is closed.
func (t *Table) Enter(a netip.Addr) bool {
	key, limited := t.key(a)
	if !limited {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.client(key)
	limit := Limit("")
	if most := t.limits.Connections; most >= 0 && c.connections >= most {
		limit = Connections
	} else if !take(&c.handshakes, t.limits.HandshakesPerSecond, t.limits.HandshakeBurst, t.now()) {
		limit = Handshakes
	}
	if limit != "" {
		t.refused(limit)
		return false
	}
	if c.connections++; c.connections == 1 {
		t.idle.Remove(key)
		t.connected[key] = c
	}
	return true
}

// Leave forgets a connection that entered.
func (t *Table) Leave(a netip.Addr) {
	key, limited := t.key(a)
	if !limited {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.connected[key]
	if c == nil {
		return
	}
	if c.connections--; c.connections == 0 {
		delete(t.connected, key)
		t.idle.Add(key, c)
	}
}

// Fail counts a request of an address that failed to authenticate. If there were too
// many, it returns when the next one may: in a second or later.
func (t *Table) Fail(a netip.Addr) (after time.Duration, refused bool) {
	key, limited := t.key(a)
	if !limited {
		return 0, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.client(key)
	if take(&c.failures, t.limits.FailuresPerSecond, t.limits.FailureBurst, t.now()) {
		return 0, false
	}
	t.refused(Failures)
	missing := (1 - c.failures.TokensAt(t.now())) / t.limits.FailuresPerSecond
	const hour = 3600 // more says nothing to a client
	return time.Second * time.Duration(math.Ceil(min(max(missing, 1), hour))), true
}

// Failed tells whether the next failure of an address will be refused.
func (t *Table) Failed(a netip.Addr) bool {
	key, limited := t.key(a)
	if !limited {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.client(key)
	return c.failures != nil && c.failures.TokensAt(t.now()) < 1
}

// key is what an address counts as, unless it has no limits.
func (t *Table) key(a netip.Addr) (netip.Prefix, bool) {
	if !a.IsValid() {
		return netip.Prefix{}, false
	}
	a = a.Unmap().WithZone("")
	if slices.ContainsFunc(t.limits.Trusted, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return netip.Prefix{}, false
	}
	key := group(a)
	return key, key.IsValid()
}

// group is what an address counts as.
func group(a netip.Addr) netip.Prefix {
	bits := 64
	if a = a.Unmap().WithZone(""); a.Is4() {
		bits = 32
	}
	key, err := a.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return key
}

// client is what is known of an address, which may be nothing. The caller has the lock.
func (t *Table) client(key netip.Prefix) *client {
	if c := t.connected[key]; c != nil {
		return c
	}
	if c, found := t.idle.Get(key); found {
		return c.(*client)
	}
	c := &client{}
	t.idle.Add(key, c)
	return c
}

// take takes a token of a bucket, which is made when it is first needed, and full.
func take(bucket **rate.Limiter, perSecond float64, burst int, now time.Time) bool {
	if perSecond < 0 || burst < 0 {
		return true
	}
	if *bucket == nil {
		*bucket = rate.NewLimiter(rate.Limit(perSecond), burst)
	}
	return (*bucket).AllowN(now, 1)
}

// Of is the address of a client: of a host and port, or no valid one if there is none.
func Of(hostPort string) netip.Addr {
	a, err := netip.ParseAddrPort(hostPort)
	if err != nil {
		return netip.Addr{}
	}
	return a.Addr()
}

// Listen closes what a table refuses before the listener returns it, after a pause in which
// nothing is read. TLS handshakes compute in turns, in which each address has as many as the
// next one, and the client's answer to the server may have so many bytes: its certificates
// are parsed before anything looks at how many there are. Less than 0 is no limit; see
// [Configure].
func (t *Table) Listen(l net.Listener, handshakes *turns.Line, answerBytes int) net.Listener {
	open, end := context.WithCancel(context.Background())
	held := pauses.New(heldConnections, allHeldConnections)
	return &listener{l, t, handshakes, answerBytes, func(name string) { held.Hold(open, name) }, end}
}

// Configure wraps a tls.Config.GetConfigForClient of what serves at such a listener, so that a client's
// certificates are verified in a turn, and what comes after them counts as no part of its answer. The
// server may have nothing to say until it answers a request: with TLS 1.3, to a client that takes no
// session tickets.
func Configure(get func(*tls.ClientHelloInfo) (*tls.Config, error)) func(*tls.ClientHelloInfo) (*tls.Config, error) {
	return func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		config, err := get(hello)
		c := countedIn(hello.Conn)
		if err != nil || config == nil || c == nil {
			return config, err
		}
		verify := config.VerifyConnection
		config = config.Clone()
		config.VerifyConnection = func(state tls.ConnectionState) error { // in each handshake, with certificates or without
			if len(state.PeerCertificates) > 0 && !state.DidResume {
				c.turn.Take(context.Background()) // Close ends the wait
			}
			if verify != nil {
				if err := verify(state); err != nil {
					return err
				}
			}
			c.verified.Store(true)
			return nil
		}
		return config, nil
	}
}

// countedIn is the connection of a listener that others wrap.
func countedIn(c net.Conn) *conn {
	for {
		switch of := c.(type) {
		case *conn:
			return of
		case interface{ NetConn() net.Conn }:
			c = of.NetConn()
		default:
			return nil
		}
	}
}

type listener struct {
	net.Listener
	table       *Table
	handshakes  *turns.Line
	answerBytes int
	hold        func(name string) // for a pause, or until the end
	end         func()
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.end()
	return l.Listener.Close()
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		a := Of(c.RemoteAddr().String())
		if l.table.Enter(a) {
			return &conn{
				Conn: c, leave: sync.OnceFunc(func() { l.table.Leave(a) }),
				turn: l.handshakes.Of(group(a).String()), answerBytes: l.answerBytes,
			}, nil
		}
		go l.refuse(c, a)
	}
}

// refuse closes a connection.
func (l *listener) refuse(c net.Conn, a netip.Addr) {
	l.hold(group(a).String())
	if tcp, is := c.(*net.TCPConn); is {
		_ = tcp.SetLinger(0) // a reset: nothing of it stays here
	}
	_ = c.Close()
}

// conn is a connection that was counted.
type conn struct {
	net.Conn
	leave       func()
	turn        *turns.Turn
	answerBytes int
	answered    int          // so many of them came
	flights     atomic.Int32 // of messages of the server
	verified    atomic.Bool  // what comes is no answer
}

const (
	greeted = 1 // the server sent its part of the handshake, and waits for the client's
	settled = 2 // it has that
)

// Read implements net.Conn. What a server makes of the client's first messages in a
// handshake, it computes in its turn: keys and a signature. A client's certificates have
// another turn, for one more. It is the most that a stranger has it compute.
// https://datatracker.ietf.org/doc/html/rfc8446#section-2
func (c *conn) Read(p []byte) (int, error) {
	switch c.flights.Load() {
	case settled:
		return c.Conn.Read(p)
	case greeted:
		if c.verified.Load() {
			c.turn.End()
			return c.Conn.Read(p)
		}
		n, err := c.Conn.Read(p)
		if c.answered += n; c.answerBytes >= 0 && c.answered > c.answerBytes {
			return 0, fmt.Errorf("the client's part of the TLS handshake has more than %d bytes", c.answerBytes)
		}
		return n, err
	}
	c.turn.Rest()
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.turn.Take(context.Background()) // Close ends the wait
	}
	return n, err
}

// Write implements net.Conn. The first message of the server ends the first turn, unless it
// asks for another first message: that one is what costs.
func (c *conn) Write(p []byte) (int, error) {
	switch flights := c.flights.Load(); {
	case flights == settled:
	case flights == greeted:
		c.flights.Store(settled)
		c.turn.End()
	case asksAgain(p):
		c.turn.Rest()
	default:
		c.flights.Store(greeted)
		c.turn.Rest()
	}
	return c.Conn.Write(p)
}

// asksAgain tells whether the server asks for a second ClientHello: its record is a
// HelloRetryRequest, which is a ServerHello with a certain random value, or the
// ChangeCipherSpec that follows it and says nothing.
// https://datatracker.ietf.org/doc/html/rfc8446#section-4.1.3
func asksAgain(record []byte) bool {
	const (
		changeCipherSpec, handshake = 20, 22 // types of records
		serverHello                 = 2      // type of the message
		header                      = 5      // of the record
		random                      = header + 6
	)
	if len(record) > 0 && record[0] == changeCipherSpec {
		return true
	}
	again := sha256.Sum256([]byte("HelloRetryRequest"))
	return len(record) >= random+len(again) && record[0] == handshake && record[header] == serverHello &&
		bytes.Equal(record[random:random+len(again)], again[:])
}

// Close implements net.Conn.
func (c *conn) Close() error {
	defer c.leave()
	c.turn.End()
	return c.Conn.Close()
}
