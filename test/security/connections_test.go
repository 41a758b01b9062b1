package security

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/fairness"
)

// TestConnections: clients that are slow, or do nothing, take little, and
// others are served meanwhile.
func TestConnections(t *testing.T) {
	t.Parallel()
	attack(t, serve(t), connectionAttempts())
}

func connectionAttempts() map[string]attempt {
	return map[string]attempt{
		"handshakes without end": {reason: "a connection without a request keeps nobody waiting", try: func(t *testing.T, w *world) {
			for range 1_000 {
				c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.address)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Close() })
				if _, err := c.Write([]byte{22, 3, 1}); err != nil { // of a ClientHello
					t.Fatal(err)
				}
			}
			w.serves(t)
		}},
		"headers without end, slowly": {reason: "a header that does not end keeps nobody waiting, and is cut after 10 s", try: func(t *testing.T, w *world) {
			each(t, 1_000, func(n int) {
				c := w.dial(t, "http/1.1")
				if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\nA: ", open, tokenOf("stranger")); err != nil {
					t.Error(n, err)
				}
			})
			w.serves(t)
		}},
		"bodies without end, slowly": {reason: "a body that does not come takes the place of its sender's priority level, and of no other", try: func(t *testing.T, w *world) {
			each(t, 300, func(n int) {
				c := w.dial(t, "http/1.1")
				if _, err := fmt.Fprintf(c, "POST %s/configmaps HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{",
					tenant, tokenOf("editor")); err != nil {
					t.Error(n, err)
				}
			})
			// Who is of the same priority level waits until fairness lends it seats;
			// others do not.
			w.must(t, request{method: "GET", path: crown}, http.StatusOK)
			w.must(t, request{method: "GET", path: vault + "/configmaps", header: keeper()}, http.StatusOK)
			w.unauthorized(t, request{method: "GET", path: open})
		}},
		"bodies without end, limited": {reason: "a limit of requests at once keeps a user from taking the seats of the others of their priority level", try: limitedBodies},
		"answers that nobody reads": {reason: "an answer that is not taken keeps nobody waiting", try: func(t *testing.T, w *world) {
			c := w.framed(t)
			// A window of 0: the server may send nothing.
			if err := c.WriteRawFrame(4, 0, 0, []byte{0, 4, 0, 0, 0, 0}); err != nil {
				t.Fatal(err)
			}
			for n := range uint32(100) {
				if err := c.request(2*n+1, "GET", "/openapi/v3", "stranger", true); err != nil {
					t.Fatal(err)
				}
			}
			w.serves(t)
		}},
		"idle watches": {reason: "10,000 watches of one user take bounded memory and keep nobody waiting", try: idleWatches},
	}
}

// limitedBodies sends bodies that never come to a server that lets each user
// make 10 requests at once: the others are refused, and who shares their
// priority level does not wait.
func limitedBodies(t *testing.T, _ *world) {
	const sent, atOnce = 300, 10
	// Who is let in keeps its place, however long it takes until all others came.
	w := serveLimited(t, controlplane.Limits{BodyTime: controlplane.Unlimited}, fairness.Limits{RequestsAtOncePerUser: atOnce})
	answers := make(chan string, sent)
	each(t, sent, func(n int) {
		c := w.dial(t, "http/1.1")
		// So much that the server does not wait for the rest before it answers.
		if _, err := fmt.Fprintf(c, "POST %s/configmaps HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{",
			tenant, tokenOf("editor")); err != nil {
			t.Error(n, err)
		}
		go func() {
			line, err := bufio.NewReader(c).ReadString('\n')
			answers <- fmt.Sprint(strings.TrimSpace(line), err)
		}()
	})
	for n := range sent - atOnce {
		select {
		case a := <-answers:
			if !strings.HasPrefix(a, "HTTP/1.1 429 ") {
				t.Fatalf("answer %d: %s", n, a)
			}
		case <-time.After(limit):
			t.Fatalf("%d were refused, want %d", n, sent-atOnce)
		}
	}
	// These two have the same level.
	w.must(t, request{as: "reader", method: "GET", path: open}, http.StatusOK)
	a := w.must(t, request{as: "editor", method: "GET", path: open}, http.StatusTooManyRequests)
	if s, err := statusOf(a); err != nil || !strings.Contains(s.Message, `limit RequestsAtOncePerUser is 10: user "editor" already has that many requests running`) || a.header.Get("Retry-After") == "" {
		t.Errorf("%v: the refusal does not say why, or not when to come again: %s %v", err, a.body, a.header)
	}
	w.unharmed(t)
}

// each calls f so many times, several at once, and waits.
func each(t *testing.T, times int, f func(n int)) {
	t.Helper()
	const atOnce = 8
	var all sync.WaitGroup
	for worker := range atOnce {
		all.Go(func() {
			for n := worker; n < times && !t.Failed(); n += atOnce {
				f(n)
			}
		})
	}
	all.Wait()
}

// idleWatches opens 10,000 watches in 100 connections, the most that each may have.
func idleWatches(t *testing.T, w *world) {
	const perConnection, connections = 100, 100
	const most = 128 << 10 // bytes that a watch may take, the client's side included
	before := heap()
	kept := make([]*framed, connections)
	for i := range kept {
		c := w.framed(t)
		kept[i] = c
		stream := uint32(1)
		for opened := 0; opened < perConnection; {
			first := stream
			for range perConnection - opened {
				if err := c.request(stream, "GET", tenant+"/configmaps?watch=true&fieldSelector=metadata.name%3Dnone", "watcher", true); err != nil {
					t.Fatal(err)
				}
				stream += 2
			}
			for s := first; s < stream; s += 2 {
				switch code := c.status(t, s); code {
				case "200":
					opened++
				case "429": // fairness; the client comes again
				default:
					t.Fatalf("watch %d of connection %d: %s", opened, i, code)
				}
			}
		}
		if i%25 == 0 {
			w.serves(t)
		}
	}
	w.serves(t)
	bytes := int64(heap()-before) / (perConnection * connections)
	t.Logf("%d watches, %d bytes each, %d goroutines", perConnection*connections, bytes, runtime.NumGoroutine())
	if bytes > most {
		t.Errorf("a watch takes %d bytes, more than %d", bytes, most)
	}
	w.must(t, request{method: "GET", path: tenant + "/configmaps"}, http.StatusOK)
	runtime.KeepAlive(kept)
	for _, c := range kept {
		c.conn.Close()
	}
}

// heap is what is in use, stacks included.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
