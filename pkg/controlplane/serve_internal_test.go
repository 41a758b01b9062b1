package controlplane

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// TestBodiesInTime: a body that does not come ends its connection, and nothing
// else is cut. What comes has time, so that a busy machine cuts nothing.
func TestBodiesInTime(t *testing.T) {
	t.Parallel()
	const short, enough = 100 * time.Millisecond, 5 * time.Second
	serve := func(limit time.Duration) string {
		server := httptest.NewServer(bodiesInTime(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/refuse":
				w.WriteHeader(http.StatusUnauthorized)
				return
			case "/read":
				if _, err := io.ReadAll(r.Body); err != nil {
					w.WriteHeader(http.StatusRequestTimeout)
					return
				}
			}
			select { // as a watch, which goes on after its body
			case <-time.After(limit + limit/2):
				w.WriteHeader(http.StatusOK)
			case <-r.Context().Done():
			}
		}), limit))
		t.Cleanup(server.Close)
		return server.Listener.Addr().String()
	}
	cutOff, whole := serve(short), serve(enough)
	cases := map[string]struct {
		reason, server, request string
		want                    int // 0: the connection ends without an answer
	}{
		"refused":  {"it waits for the body before it answers", cutOff, "POST /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n", 0},
		"read":     {"a handler waits for the body", cutOff, "POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc", http.StatusRequestTimeout},
		"whole":    {"the body is there", whole, "POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", http.StatusOK},
		"no body":  {"there is none to wait for", cutOff, "GET /watch HTTP/1.1\r\nHost: a\r\n\r\n", http.StatusOK},
		"in parts": {"it comes in chunks", whole, "POST /read HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", http.StatusOK},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", tc.server)
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

// TestStreamsInTime: a body of HTTP/2 that does not come is cut off, and that of a
// request without an end is not, nor what nobody reads yet.
func TestStreamsInTime(t *testing.T) {
	t.Parallel()
	long := func(r *http.Request, _ *apirequest.RequestInfo) bool { return r.URL.Path == "/proxy" }
	entered, release := make(chan struct{}), make(chan struct{})
	inner := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/read" {
			entered <- struct{}{}
		}
		if r.URL.Path == "/late" {
			<-release // it is in a queue
		}
		if _, err := r.Body.Read(make([]byte, 1)); err != nil {
			var status *apierrors.StatusError
			if !errors.As(err, &status) {
				t.Errorf("%v is no status", err)
			}
			w.WriteHeader(http.StatusRequestTimeout)
		}
	})
	named := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		withoutEnd(inner, long).ServeHTTP(w, r.WithContext(apirequest.WithRequestInfo(r.Context(), &apirequest.RequestInfo{})))
	})
	server := httptest.NewUnstartedServer(bodiesInTime(named, 100*time.Millisecond))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	code := func(path string, body io.Reader) int {
		r, err := http.NewRequestWithContext(t.Context(), "POST", server.URL+path, body)
		if err != nil {
			t.Error(err)
			return 0
		}
		resp, err := server.Client().Do(r)
		if err != nil {
			t.Error(err)
			return 0
		}
		resp.Body.Close()
		if resp.ProtoMajor != 2 {
			t.Errorf("%s: %s", path, resp.Proto)
		}
		return resp.StatusCode
	}
	// Each is cut off when its time is over, which tells the others that theirs would be.
	never := func() {
		body, in := io.Pipe()
		defer in.Close()
		if got := code("/read", body); got != http.StatusRequestTimeout {
			t.Errorf("a body that never comes: %d, want 408", got)
		}
	}
	late, proxied := make(chan int, 1), make(chan int, 1)
	go func() { late <- code("/late", strings.NewReader("a")) }()
	<-entered
	body, in := io.Pipe()
	go func() { proxied <- code("/proxy", body) }()
	<-entered
	never()
	never()
	close(release)
	if got := <-late; got != http.StatusOK {
		t.Errorf("a body that came while nobody read: %d, want 200", got)
	}
	if _, err := in.Write([]byte("a")); err != nil {
		t.Error(err)
	}
	in.Close()
	if got := <-proxied; got != http.StatusOK {
		t.Errorf("what a proxy passes on takes its time: %d, want 200", got)
	}
}

// TestProgress: what comes buys time, up to the time of a request.
func TestProgress(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		waited time.Duration
		read   int64
		want   time.Duration // that is left; 0: none
	}{
		"begin":    {"nothing came yet", 0, 0, 10 * time.Second},
		"nothing":  {"its time is over", 11 * time.Second, 0, 0},
		"drips":    {"some bytes are no progress", 11 * time.Second, 100, 0},
		"progress": {"a second for each 16 KiB", 11 * time.Second, 64 << 10, 3 * time.Second},
		"large":    {"no request takes longer", 55 * time.Second, 3 << 20, 5 * time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := timedBody{limit: 10 * time.Second, waited: tc.waited, read: tc.read}
			if got := max(body.left(), 0); got != tc.want {
				t.Errorf("%s: %v is left, want %v", tc.reason, got, tc.want)
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
