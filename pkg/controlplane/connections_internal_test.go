package controlplane

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/internal/pki"
)

// noTime is long past what any of these tests takes.
const noTime = time.Hour

// fullListener has too many open files once, before it accepts.
type fullListener struct {
	net.Listener
	was atomic.Bool
}

func (l *fullListener) Accept() (net.Conn, error) {
	if !l.was.Swap(true) {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return l.Listener.Accept()
}

// listen is a listener of this machine, and a TLS configuration to serve at it.
func listen(t *testing.T) (net.Listener, *tls.Config) {
	t.Helper()
	made, err := pki.Dir("").Load(t.Context(), pki.Request{User: "anybody"})
	if err != nil {
		t.Fatal(err)
	}
	// What the server proves is not what is tested: any certificate does.
	certificate, err := tls.X509KeyPair(made.AdminCert, made.AdminKey)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, Certificates: []tls.Certificate{certificate},
	}
}

// askFor is a request for a server name over HTTP/1.1, and the first line of the answer.
func askFor(t *testing.T, address, name string) (string, error) {
	t.Helper()
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, ServerName: name}} // see listen
	c, err := d.DialContext(t.Context(), "tcp", address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line), err
}

// serveSorted serves 204 at a listener whose connections are sorted.
func serveSorted(t *testing.T, l net.Listener, config *tls.Config, parts []named[TakeFunc]) {
	t.Helper()
	server := &http.Server{
		TLSConfig: config, ReadHeaderTimeout: noTime,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }),
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(newSorter(l, config, parts, noTime)) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("the server ended with %v, want that it serves until it is closed", err)
		}
	})
}

// TestSorterOutlivesFullTable: too many open files are no reason to end, for a moment later
// there may be fewer: net/http waits, as with any listener.
func TestSorterOutlivesFullTable(t *testing.T) {
	t.Parallel()
	l, config := listen(t)
	serveSorted(t, &fullListener{Listener: l}, config, nil)
	if line, err := askFor(t, l.Addr().String(), "a"); line != "HTTP/1.1 204 No Content" || err != nil {
		t.Errorf("after an error that passes: %q, %v", line, err)
	}
}

// TestSorterOutlivesPanics: what a stranger sends may be too much for who looks at it. That
// ends the stranger's connection, as in net/http, and not the process.
func TestSorterOutlivesPanics(t *testing.T) {
	t.Parallel()
	l, config := listen(t)
	serveSorted(t, l, config, []named[TakeFunc]{{value: func(c *tls.Conn) bool {
		if c.ConnectionState().ServerName == "too-much" {
			panic("a certificate that nobody thought of")
		}
		return false
	}}})
	if line, err := askFor(t, l.Addr().String(), "too-much"); line != "" || err == nil {
		t.Errorf("a connection that made a part panic is answered with %q", line)
	}
	if line, err := askFor(t, l.Addr().String(), "a"); line != "HTTP/1.1 204 No Content" || err != nil {
		t.Errorf("the next connection: %q, %v", line, err)
	}
}

// TestSorterReturnsErrors: who accepts gets the listener's error as it is: net/http asks it
// whether it passes.
func TestSorterReturnsErrors(t *testing.T) {
	t.Parallel()
	l, config := listen(t)
	s := newSorter(&fullListener{Listener: l}, config, nil, noTime)
	defer s.Close()
	_, err := s.Accept()
	passing, is := err.(net.Error)                                      //nolint:errorlint // as net/http asks
	if !is || !passing.Temporary() || !errors.Is(err, syscall.EMFILE) { //nolint:staticcheck // net/http asks for it
		t.Errorf("Accept returns %v, want the error of the listener", err)
	}
}

// TestSorterCloses: Close ends handshakes and connections that nobody accepted, and waits
// until their goroutines have ended. Then there is nothing to accept.
func TestSorterCloses(t *testing.T) {
	t.Parallel()
	l, config := listen(t)
	looked := make(chan struct{})
	s := newSorter(l, config, []named[TakeFunc]{{value: func(*tls.Conn) bool { close(looked); return false }}}, noTime)
	silent, err := net.Dial("tcp", l.Addr().String()) // before the other one, so it is accepted first
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	waiting, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true}) // see listen
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	<-looked
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]net.Conn{"in its handshake": silent, "that nobody accepted": waiting} {
		if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Errorf("a connection %s reads %d bytes, %v, want it closed", what, n, err)
		}
	}
	if _, err := s.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close returns %v, want net.ErrClosed", err)
	}
}
