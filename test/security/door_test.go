package security

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// TestDoor: what a stranger can do before anybody is known. It is not parallel: it
// counts what is allocated.
//
//nolint:paralleltest // see above
func TestDoor(t *testing.T) {
	attack(t, serveLimited(t, doorLimits(), panics{}), doorAttempts())
}

const doorConnections, doorHandshakes, doorFailures = 50, 120, 30

// doorLimits are small ones for all but 127.0.0.1, from where the others come.
func doorLimits() controlplane.Limits {
	const never = 1e-6 // per second
	return controlplane.Limits{
		Addresses: controlplane.AddressLimits{
			Connections:         doorConnections,
			HandshakesPerSecond: never, HandshakeBurst: doorHandshakes,
			FailuresPerSecond: never, FailureBurst: doorFailures,
			Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
		},
	}
}

// panics is a part with a path at which the server panics with the query.
type panics struct{}

// Install implements controlplane.Part.
func (panics) Install(p *controlplane.Plan) error {
	p.Wrap(controlplane.AfterAuthentication, "panics", func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/panic" {
				panic(r.URL.RawQuery)
			}
			h.ServeHTTP(w, r)
		})
	})
	return nil
}

func doorAttempts() map[string]attempt {
	return map[string]attempt{
		"connections of one address": {reason: "one address cannot use up the files of the process", try: func(t *testing.T, w *world) {
			open := w.storm(t, "127.0.0.2", 2*doorConnections, func(net.Conn) {})
			if open != doorConnections {
				t.Errorf("%d connections are open, want %d", open, doorConnections)
			}
			if w.enter(t, "127.0.0.3") == nil {
				t.Error("another address is refused")
			}
			w.counts(t, "connections", doorConnections)
		}},
		"handshakes of one address": {reason: "a handshake costs the server more than the client", try: func(t *testing.T, w *world) {
			begun := w.storm(t, "127.0.0.4", 2*doorHandshakes, func(c net.Conn) { _ = c.Close() })
			// Before the server has seen that a connection is closed, it counts.
			if begun == 0 || begun > doorHandshakes {
				t.Errorf("%d handshakes are begun, want at most %d", begun, doorHandshakes)
			}
			w.serves(t)
		}},
		"wrong tokens without end": {reason: "guesses are counted and cost little, and who has credentials passes", try: wrongTokens},
		"long query of a stranger": {reason: "a query is read when it is known who asks", try: func(t *testing.T, w *world) {
			const most = 1 << 20 // bytes
			for _, query := range []string{strings.Repeat("a=b,", 4_000) + "a", strings.Repeat("a,", 8_000) + "a", strings.Repeat("!", 16_000)} {
				if got := w.allocated(t, query); got > most {
					t.Errorf("labelSelector=%s allocates %d bytes, want at most %d", query[:4], got, most)
				}
			}
		}},
		"long query into the log": {reason: "a log is not filled with what clients send", try: longLines},
	}
}

// TestSlow: what does not come in time is not waited for.
func TestSlow(t *testing.T) {
	t.Parallel()
	attack(t, serveLimited(t, controlplane.Limits{HeaderTime: slowTime, BodyTime: slowTime}), slowAttempts())
}

// slowTime is short, and long enough for a machine that is busy.
const slowTime = 3 * time.Second

func slowAttempts() map[string]attempt {
	return map[string]attempt{
		"handshake without end": {reason: "a client that does not finish its handshake is cut off", try: func(t *testing.T, w *world) {
			c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			if _, err := c.Write([]byte{22, 3, 1}); err != nil { // of a ClientHello
				t.Fatal(err)
			}
			w.cutOff(t, c)
		}},
		"header without end": {reason: "a client that does not finish its header is cut off", try: func(t *testing.T, w *world) {
			c := w.dial(t, "http/1.1")
			if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nA: "); err != nil {
				t.Fatal(err)
			}
			w.cutOff(t, c)
		}},
		"connection that is dead": {reason: "a client that answers no ping is gone, and so are its watches", try: func(t *testing.T, w *world) {
			c := w.framed(t)
			if err := c.request(1, "GET", tenant+"/configmaps?watch=true&fieldSelector=metadata.name%3Dnone", "watcher", true); err != nil {
				t.Fatal(err)
			}
			for { // and answer nothing
				if _, err := c.ReadFrame(); err != nil {
					if isTimeout(err) {
						t.Error("the connection stays open")
					}
					return
				}
			}
		}},
		"body without end, HTTP/1.1": {reason: "who waits for a body takes the place of others", try: func(t *testing.T, w *world) {
			c := w.dial(t, "http/1.1")
			if _, err := fmt.Fprintf(c, "POST %s/configmaps HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{",
				tenant, tokenOf("editor")); err != nil {
				t.Fatal(err)
			}
			if err := c.SetReadDeadline(time.Now().Add(8 * slowTime)); err != nil {
				t.Fatal(err)
			}
			// 504, or none, when the handler sees first that the connection ends.
			line, err := bufio.NewReader(c).ReadString('\n')
			if isTimeout(err) || err == nil && !strings.HasPrefix(line, "HTTP/1.1 408 ") && !strings.HasPrefix(line, "HTTP/1.1 504 ") {
				t.Errorf("%q, %v", line, err)
			}
		}},
		"body without end, HTTP/2": {reason: "a stream is no way round the limit", try: func(t *testing.T, w *world) {
			c := w.framed(t)
			if err := c.request(1, "POST", tenant+"/configmaps", "editor", false); err != nil {
				t.Fatal(err)
			}
			if code := c.status(t, 1); code != "408" {
				t.Errorf("%s, want 408", code)
			}
		}},
		"body that drips": {reason: "a byte now and then is no progress", try: func(t *testing.T, w *world) {
			c := w.framed(t)
			if err := c.request(1, "POST", tenant+"/configmaps", "editor", false); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			dripped := make(chan struct{})
			go func() {
				defer close(dripped)
				for tick := time.NewTicker(slowTime / 10); c.WriteData(1, false, []byte("{")) == nil; {
					select {
					case <-ctx.Done():
						return
					case <-tick.C:
					}
				}
			}()
			code := c.status(t, 1)
			cancel()
			<-dripped
			if code != "408" {
				t.Errorf("%s, want 408", code)
			}
		}},
	}
}

// from is a dialer at another address of this machine.
func from(t *testing.T, address string) *net.Dialer {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("this system has only one loopback address")
	}
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
}

// enter opens a connection with a TLS handshake; nil if the server does not let it.
func (w *world) enter(t *testing.T, address string) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	c, err := (&tls.Dialer{NetDialer: from(t, address), Config: w.tls(nil, "h2")}).DialContext(ctx, "tcp", w.address)
	if err != nil {
		if isTimeout(err) {
			t.Errorf("the server lets a client wait: %v", err)
		}
		return nil
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Error(err)
	}
	return c
}

// storm enters so many times at once, and returns how often the server let it. The server
// keeps nobody for long who says nothing, and closes what it refuses late.
func (w *world) storm(t *testing.T, address string, times int, then func(net.Conn)) int {
	t.Helper()
	var entered atomic.Int64
	var all sync.WaitGroup
	for range times {
		all.Go(func() {
			if c := w.enter(t, address); c != nil {
				entered.Add(1)
				then(c)
			}
		})
	}
	all.Wait()
	return int(entered.Load())
}

// cutOff waits until the server closes a connection.
func (w *world) cutOff(t *testing.T, c net.Conn) {
	t.Helper()
	// Far less than before: 32 s.
	if err := c.SetReadDeadline(time.Now().Add(8 * slowTime)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, c); isTimeout(err) {
		t.Error("the connection stays open")
	}
}

// counts requires that the metric of refusals has at least so many.
func (w *world) counts(t *testing.T, limit string, least int) {
	t.Helper()
	a := w.must(t, request{method: "GET", path: "/metrics"}, http.StatusOK)
	prefix, got := fmt.Sprintf("sailplane_addresses_refused_total{limit=%q} ", limit), 0
	for line := range strings.Lines(a.body) {
		if value, found := strings.CutPrefix(line, prefix); found {
			_, _ = fmt.Sscan(value, &got)
		}
	}
	if got < least {
		t.Errorf("%s%d, want at least %d", prefix, got, least)
	}
}

// wrongTokens guesses tokens: after some the answer is 429, for which no audit event is
// written, while the right token passes.
func wrongTokens(t *testing.T, w *world) {
	const address = "127.0.0.5"
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: w.tls(nil), ForceAttemptHTTP2: true, DialContext: from(t, address).DialContext,
	}}
	defer client.CloseIdleConnections()
	ask := func(token string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "GET", w.base+open, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		return resp
	}
	const more = 10
	for n := range doorFailures + more {
		resp, want := ask(fmt.Sprint("guess-", n)), http.StatusUnauthorized
		if n >= doorFailures {
			want = http.StatusTooManyRequests
		}
		if resp.StatusCode != want || (want == http.StatusTooManyRequests) != (resp.Header.Get("Retry-After") != "") {
			t.Errorf("guess %d: %d with Retry-After %q, want %d", n, resp.StatusCode, resp.Header.Get("Retry-After"), want)
		}
	}
	if resp := ask(tokenOf("reader")); resp.StatusCode != http.StatusOK {
		t.Errorf("the right token gets %d", resp.StatusCode)
	}
	w.counts(t, "failures", more)
	log, err := os.ReadFile(w.audit)
	if err != nil {
		t.Fatal(err)
	}
	events := 0
	for line := range bytes.Lines(log) {
		var e struct {
			SourceIPs      []string
			ResponseStatus struct{ Code int }
		}
		if json.Unmarshal(line, &e) == nil && len(e.SourceIPs) > 0 && e.SourceIPs[0] == address && e.ResponseStatus.Code/100 == 4 {
			events++
		}
	}
	if events > doorFailures {
		t.Errorf("%d events of failed requests, want at most %d", events, doorFailures)
	}
}

// allocated is how much one request with a selector allocates, the client included.
func (w *world) allocated(t *testing.T, selector string) uint64 {
	t.Helper()
	r := request{method: "GET", path: tenant + "/configmaps?labelSelector=" + selector}
	w.unauthorized(t, r)
	const times = 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range times {
		w.unauthorized(t, r)
	}
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) / times
}

// longLines sends what upstream logs: a query that is malformed, and one at which the
// server panics.
func longLines(t *testing.T, w *world) {
	const size, most = 15_000, 512
	logs.longest()
	bad := strings.Repeat("!", size)
	w.send(t, request{as: "chief", method: "GET", path: tenant + "/configmaps?labelSelector=" + bad})
	w.unauthorized(t, request{method: "GET", path: tenant + "/configmaps?labelSelector=" + bad[:900]})
	_, _ = w.try(t.Context(), request{as: "chief", method: "GET", path: "/panic?" + bad}) // the stream may be reset
	panics, longest := logs.longest()
	if panics == 0 {
		t.Error("the server does not log the panic")
	}
	if n := strings.Count(longest, "!"); strings.Contains(longest, bad[:600]) || n > most {
		t.Errorf("a line has %d bytes of the query, want at most %d: %s", n, most, longest)
	}
}
