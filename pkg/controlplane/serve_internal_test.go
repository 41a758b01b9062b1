package controlplane

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"
)

// TestBodiesInTime: a body that does not come ends its connection, and nothing
// else is cut.
func TestBodiesInTime(t *testing.T) {
	t.Parallel()
	const limit = 100 * time.Millisecond
	server := httptest.NewServer(bodiesInTime(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/refuse":
			w.WriteHeader(http.StatusUnauthorized)
			return
		case "/read":
			if _, err := io.ReadAll(r.Body); err != nil {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
		}
		select { // as a watch, which goes on after its body
		case <-time.After(3 * limit):
			w.WriteHeader(http.StatusOK)
		case <-r.Context().Done():
		}
	}), limit))
	t.Cleanup(server.Close)
	cases := map[string]struct {
		reason, request string
		want            int // 0: the connection ends without an answer
	}{
		"refused":  {"it waits for the body before it answers", "POST /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n", 0},
		"read":     {"a handler waits for the body", "POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc", http.StatusBadRequest},
		"whole":    {"the body is there", "POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", http.StatusOK},
		"no body":  {"there is none to wait for", "GET /watch HTTP/1.1\r\nHost: a\r\n\r\n", http.StatusOK},
		"in parts": {"it comes in chunks", "POST /read HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", http.StatusOK},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, tc.request); err != nil {
				t.Fatal(err)
			}
			if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				if tc.want != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%s: %v, want %d", tc.reason, err, tc.want)
				}
				return
			}
			resp.Body.Close()
			if resp.StatusCode != tc.want && tc.want != 0 {
				t.Errorf("%s: %d, want %d", tc.reason, resp.StatusCode, tc.want)
			}
		})
	}
}

// TestLargeBodyIsRefusedAtOnce: what is too much to be read is not waited for.
func TestLargeBodyIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(bodiesInTime(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	}), time.Hour))
	t.Cleanup(server.Close)
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("%d, want 401", resp.StatusCode)
	}
}
