package tied_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/internal/leaktest"
	"github.com/sailplane-dev/sailplane/pkg/internal/tied"
)

func TestMain(m *testing.M) {
	os.Exit(leaktest.Run(m))
}

// upgrade asks a handler behind tied.Handler for its connection, and returns the client's side.
func upgrade(t *testing.T, h http.HandlerFunc) net.Conn {
	t.Helper()
	s := httptest.NewServer(tied.Handler(h))
	t.Cleanup(s.Close)
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nearly"); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestClientLeaves: the context ends with the client, though nobody reads what it sent.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	taken, ended := make(chan struct{}), make(chan string, 1)
	conn := upgrade(t, func(w http.ResponseWriter, r *http.Request) {
		if _, shows := w.(interface{ Unwrap() http.ResponseWriter }); shows {
			t.Error("the answer shows what is below it, from which the connection could be taken too")
		}
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		close(taken)
		<-r.Context().Done()
		if tied.Upgrade(r.Context()) == nil {
			t.Error("the request is unknown")
		}
		_ = c.Close()
		ended <- "ended"
	})
	<-taken
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	<-ended // the test's own timeout says when it does not
}

// TestHandlerReturns: a connection that was taken and forgotten is closed, and what came
// before it was taken is read.
func TestHandlerReturns(t *testing.T) {
	t.Parallel()
	conn := upgrade(t, func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		early := make([]byte, len("early"))
		if _, err := io.ReadFull(c, early); err != nil || string(early) != "early" {
			t.Errorf("read %q: %v", early, err)
		}
		if _, err := c.Write(bytes.ToUpper(early)); err != nil {
			t.Error(err)
		}
	})
	if got, err := io.ReadAll(conn); err != nil || string(got) != "EARLY" {
		t.Errorf("the client got %q: %v", got, err)
	}
}

// TestIdle: a connection lasts while something comes or goes, and ends after four hours of
// nothing.
func TestIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		ended := make(chan struct{})
		c := tied.Receiving(server, server, func() { close(ended) })
		go func() { _, _ = io.Copy(io.Discard, client) }()
		begun := time.Now()
		for range 3 {
			time.Sleep(3 * time.Hour)
			if _, err := c.Write([]byte("x")); err != nil {
				t.Fatalf("after %v: %v", time.Since(begun), err)
			}
		}
		<-ended
		if lasted := time.Since(begun); lasted != 13*time.Hour {
			t.Errorf("the connection ended after %v, want 4 h after 9", lasted)
		}
		_ = client.Close()
	})
}

// TestWindow: a client that sends what nobody reads waits.
func TestWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		c := tied.Receiving(server, server, func() {})
		sent, most := 0, 1<<20
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			defer stop()
			for p := make([]byte, 1<<10); sent < most; sent += len(p) {
				if _, err := client.Write(p); err != nil {
					return
				}
			}
		}()
		synctest.Wait()
		if sent > 128<<10 {
			t.Errorf("%d bytes are received that nobody reads", sent)
		}
		if n, err := io.CopyN(io.Discard, c, int64(most)); err != nil {
			t.Errorf("%d bytes are read: %v", n, err)
		}
		<-ctx.Done()
		_ = c.Close()
	})
}
