package addresses

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/internal/pauses"
	"github.com/sailplane-dev/sailplane/pkg/internal/turns"
)

// TestListen: what is too much is closed before anything is read, and what was closed
// is forgotten.
func TestListen(t *testing.T) {
	t.Parallel()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := limits()
	l.Connections, l.HandshakeBurst = 1, 100
	f := newFixture(l)
	listener := f.Listen(inner, turns.New(1), -1)
	defer listener.Close()
	accepted := make(chan net.Conn, 10)
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- c
		}
	}()
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	dial()
	first := <-accepted
	if _, err := dial().Read(make([]byte, 1)); err == nil {
		t.Error("a second connection is served")
	}
	for range 2 { // it may be closed twice, and counts once
		_ = first.Close()
	}
	dial()
	(<-accepted).Close()
}

// TestRefusedLate: a connection that is refused is closed after a pause, and when the
// listener is closed.
func TestRefusedLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limits()
		l.Connections = 0
		inner := &clients{arriving: make(chan net.Conn)}
		listener := newFixture(l).Listen(inner, turns.New(1), -1)
		go func() {
			if c, err := listener.Accept(); err == nil {
				t.Errorf("a connection of %s is served", c.RemoteAddr())
			}
		}()
		closed := func(during func()) time.Duration {
			server, client := net.Pipe()
			inner.arriving <- &from{server}
			began := time.Now()
			go during()
			if _, err := client.Read(make([]byte, 1)); err == nil {
				t.Error("the client reads something")
			}
			return time.Since(began)
		}
		if got := closed(func() {}); got != pauses.Length {
			t.Errorf("a connection is closed after %v, want %v", got, pauses.Length)
		}
		if got := closed(func() { _ = listener.Close() }); got != 0 {
			t.Errorf("a connection is closed %v after the listener", got)
		}
	})
}

// clients is a listener to which clients come.
type clients struct{ arriving chan net.Conn }

func (c *clients) Accept() (net.Conn, error) {
	if conn, ok := <-c.arriving; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (c *clients) Close() error { close(c.arriving); return nil }

func (*clients) Addr() net.Addr { return nil }

// from is a connection that comes from an address.
type from struct{ net.Conn }

func (*from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1} }

// TestAnswerBytes: what a client answers to the server's part of a handshake is bounded, and
// nothing else.
func TestAnswerBytes(t *testing.T) {
	t.Parallel()
	const most = 1000
	cases := map[string]struct {
		reason                 string
		hello, answer, request int
		limit                  int
		want                   bool
	}{
		"short":    {"as much as it may have", 10, most, 1, most, true},
		"long":     {"it has more", 10, most + 1, 1, most, false},
		"hello":    {"it is no answer", 3 * most, most, 1, most, true},
		"request":  {"the handshake is over", 10, most, 3 * most, most, true},
		"no limit": {"nothing is limited", 10, 9 * most, 1, -1, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inner := &clients{arriving: make(chan net.Conn, 1)}
			near, far := net.Pipe()
			defer near.Close()
			inner.arriving <- &from{far}
			server, err := newFixture(limits()).Listen(inner, turns.New(1), tc.limit).Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			go func() {
				for _, n := range []int{tc.hello, tc.answer, tc.request} {
					if _, err := near.Write(make([]byte, n)); err != nil {
						return
					}
					if _, err := near.Read(make([]byte, 1)); err != nil {
						return
					}
				}
			}()
			var failed error
			for _, n := range []int{tc.hello, tc.answer, tc.request} {
				if _, err := io.ReadFull(server, make([]byte, n)); err != nil {
					failed = err
					break
				}
				if _, err := server.Write([]byte{0}); err != nil {
					t.Fatal(err)
				}
			}
			if (failed == nil) != tc.want {
				t.Errorf("%s: %v", tc.reason, failed)
			}
		})
	}
}

// TestRequestsAreNoAnswer: a server of TLS 1.3 says nothing after the handshake to a client that takes no
// session tickets, and yet reads as much as that sends.
func TestRequestsAreNoAnswer(t *testing.T) {
	t.Parallel()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const most, request = 16 << 10, 1 << 20
	config := &tls.Config{Certificates: []tls.Certificate{certificate(t)}, ClientAuth: tls.RequestClientCert}
	config.GetConfigForClient = Configure(func(*tls.ClientHelloInfo) (*tls.Config, error) { return config, nil })
	listener := tls.NewListener(newFixture(limits()).Listen(inner, turns.New(1), most), config)
	defer listener.Close()
	dialed := make(chan error, 1)
	go func() {
		c, err := tls.Dial("tcp", inner.Addr().String(), &tls.Config{
			InsecureSkipVerify: true, Certificates: []tls.Certificate{certificate(t)},
		})
		if err == nil {
			_, err = c.Write(make([]byte, request))
			defer c.Close()
		}
		dialed <- err
	}()
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if n, err := io.ReadFull(server, make([]byte, request)); err != nil {
		t.Errorf("%d bytes came: %v", n, err)
	}
	if err := <-dialed; err != nil {
		t.Error(err)
	}
}

// TestHandshakeTurns: what comes first on a connection is read in turns, until the server
// answers.
func TestHandshakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := pipes{make(chan net.Conn)}
		listener := newFixture(limits()).Listen(inner, turns.New(1), -1)
		open := func() (client, server net.Conn) {
			t.Helper()
			client, far := net.Pipe()
			go func() { inner.accepted <- far }()
			server, err := listener.Accept()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = errors.Join(client.Close(), server.Close()) })
			return client, server
		}
		hello := func(client, server net.Conn) (read *bool) {
			read = new(bool)
			go func() { _, _ = client.Write([]byte("hello")) }()
			go func() { _, _ = server.Read(make([]byte, 10)); *read = true }()
			synctest.Wait()
			return read
		}
		oneClient, one := open()
		twoClient, two := open()
		if !*hello(oneClient, one) {
			t.Fatal("the first has no turn")
		}
		read := hello(twoClient, two)
		if *read {
			t.Error("two connections have a turn")
		}
		go func() { _, _ = oneClient.Read(make([]byte, 10)) }()
		if _, err := one.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !*read {
			t.Error("the turn did not end with the answer")
		}
		if !*hello(oneClient, one) {
			t.Error("what comes later waits for a turn")
		}
		_ = two.Close()
		if client, server := open(); !*hello(client, server) {
			t.Error("the turn of a closed connection did not end")
		}
	})
}

// TestSecondTurn: what a server makes of a client's second message, it computes in a second
// turn, and it has none while it waits for it.
func TestSecondTurn(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		server, client *tls.Config
	}{
		"hello": {
			&tls.Config{CurvePreferences: []tls.CurveID{tls.CurveP384}}, // so it asks for a key of that curve
			&tls.Config{CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP384}},
		},
		"certificate": {&tls.Config{ClientAuth: tls.RequireAnyClientCert}, &tls.Config{Certificates: []tls.Certificate{certificate(t)}}},
		"certificate without tickets": {
			&tls.Config{ClientAuth: tls.RequireAnyClientCert, SessionTicketsDisabled: true},
			&tls.Config{Certificates: []tls.Certificate{certificate(t)}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.server.Certificates = []tls.Certificate{certificate(t)}
			tc.server.GetConfigForClient = Configure(func(*tls.ClientHelloInfo) (*tls.Config, error) { return tc.server.Clone(), nil })
			tc.client.InsecureSkipVerify = true // it is about the messages
			synctest.Test(t, func(t *testing.T) { testSecondTurn(t, tc.server, tc.client) })
		})
	}
}

func testSecondTurn(t *testing.T, serves, dials *tls.Config) {
	t.Helper()
	inner, line := pipes{make(chan net.Conn)}, turns.New(1)
	listener := newFixture(limits()).Listen(inner, line, -1)
	near, far := net.Pipe()
	go func() { inner.accepted <- far }()
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	client, server := &gated{Conn: near, messages: make(chan []byte, 100), gate: make(chan bool)}, tls.Server(accepted, serves)
	go client.write()
	ended := make(chan error, 1)
	go func() {
		ended <- server.HandshakeContext(t.Context())
		_, _ = server.Read(make([]byte, 1)) // of the first request
	}()
	go func() { _, _ = tls.Client(client, dials).Read(make([]byte, 1)) }() // and shakes hands before
	other, began := line.Of("other"), time.Now()
	synctest.Wait()
	other.Take(t.Context())
	if waited := time.Since(began); waited > 0 {
		t.Errorf("a server that waits for the client has the turn for %s", waited)
	}
	close(client.gate)
	synctest.Wait()
	select {
	case err := <-ended:
		t.Errorf("the second message is read without a turn: %v", err)
	default:
	}
	other.End()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	last := line.Of("last")
	last.Take(t.Context())
	last.End()
	if waited := time.Since(began); waited > 0 {
		t.Errorf("the turn lasts longer than the handshake: %s", waited)
	}
	close(client.messages)
	_ = errors.Join(near.Close(), accepted.Close())
}

// TestCloseEndsTheWait: closing a connection that waits for its turn blocks nobody.
func TestCloseEndsTheWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner, line := pipes{make(chan net.Conn)}, turns.New(1)
		other := line.Of("other")
		other.Take(t.Context())
		defer other.End()
		listener := newFixture(limits()).Listen(inner, line, -1)
		near, far := net.Pipe()
		go func() { inner.accepted <- far }()
		c, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		began, read := time.Now(), make(chan struct{})
		go func() { _, _ = near.Write([]byte("hello")) }()
		go func() {
			defer close(read)
			_, _ = c.Read(make([]byte, 10)) // what comes is of no interest
		}()
		synctest.Wait()
		_ = c.Close()
		<-read
		if waited := time.Since(began); waited > 0 {
			t.Errorf("closing takes %s", waited)
		}
	})
}

// gated is a client's connection that writes without waiting, and all but the first
// message when the gate opens.
type gated struct {
	net.Conn
	messages chan []byte
	gate     chan bool
}

// Write implements net.Conn.
func (g *gated) Write(p []byte) (int, error) {
	g.messages <- bytes.Clone(p)
	return len(p), nil
}

func (g *gated) write() {
	first := true
	for m := range g.messages {
		if !first {
			<-g.gate
		}
		first = false
		_, _ = g.Conn.Write(m)
	}
}

// certificate is one that signed itself.
func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// pipes is a listener of pipes.
type pipes struct{ accepted chan net.Conn }

func (p pipes) Accept() (net.Conn, error) { return <-p.accepted, nil }
func (p pipes) Close() error              { return nil }
func (p pipes) Addr() net.Addr            { return &net.TCPAddr{} }
