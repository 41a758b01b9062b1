package security

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// TestAnswers: large answers take a bounded part of the memory, whoever asks for
// them, and others are served meanwhile. It measures the memory of the process, so
// no other test may run beside it.
func TestAnswers(t *testing.T) {
	w := serve(t)
	w.grow(t, large)
	attack(t, w, answerAttempts())
}

const (
	// large is how many ConfigMaps of 1 MiB namespace tenant has.
	large = 60
	// askers is how many lists of all of them are asked for at once.
	askers = 20
	// mostGrowth is how much the process may grow meanwhile, the test's side included.
	mostGrowth = 1 << 30
)

// grow makes so many large objects.
func (w *world) grow(t *testing.T, count int) {
	t.Helper()
	each(t, count, func(n int) {
		name := fmt.Sprintf("large-%02d", n)
		a, err := w.try(t.Context(), request{
			as: "editor", method: "POST", path: tenant + "/configmaps", body: configMap(name, `{"a":"`+strings.Repeat("a", 1<<20-64)+`"}`),
		})
		if err != nil || a.code != http.StatusCreated {
			t.Errorf("%s: %v %d %s", name, err, a.code, short(a.body))
		}
	})
}

func answerAttempts() map[string]attempt {
	const maps = tenant + "/configmaps"
	const table = "application/json;as=Table;v=v1;g=meta.k8s.io"
	list := func(path, accept string, header ...string) func(*testing.T, *world) {
		return func(t *testing.T, w *world) { w.askAll(t, path, accept, header...) }
	}
	return map[string]attempt{
		"large lists as JSON":       {reason: "a list is written as it is encoded", try: list(maps, "application/json")},
		"large lists as YAML":       {reason: "a list is written as it is encoded", try: list(maps, "application/yaml")},
		"large lists as protobuf":   {reason: "a list is written as it is encoded", try: list(maps, "application/vnd.kubernetes.protobuf")},
		"large lists as tables":     {reason: "what must be whole waits for its turn", try: list(maps+"?includeObject=Object", table)},
		"large lists, indented":     {reason: "what must be whole waits for its turn", try: list(maps+"?pretty=true", "application/json")},
		"large lists, compressed":   {reason: "a list is compressed as it is encoded", try: list(maps, "application/json", "Accept-Encoding", "gzip")},
		"large lists of the past":   {reason: "what is read from the storage waits for its turn", try: pastLists},
		"large lists, not read":     {reason: "an answer that is not taken ends, and its memory returns", try: unreadLists},
		"watches that are not read": {reason: "a watch whose events are not taken ends", try: unreadWatches},
	}
}

// pastLists asks for the objects of a revision that the watch cache does not have.
func pastLists(t *testing.T, w *world) {
	var present metav1.PartialObjectMetadataList
	w.must(t, request{method: "GET", path: tenant + "/configmaps?limit=1"}, http.StatusOK).into(t, &present)
	version := present.ResourceVersion
	w.must(t, request{as: "editor", method: "POST", path: tenant + "/configmaps", body: configMap("later", "{}")}, http.StatusCreated)
	w.askAll(t, tenant+"/configmaps?resourceVersionMatch=Exact&resourceVersion="+version, "application/json")
}

// hasty cuts off clients that take nothing for a second.
func hasty() controlplane.Limits {
	return controlplane.Limits{Answers: controlplane.AnswerLimits{Stall: time.Second}}
}

// unreadLists asks for large lists with windows that are never opened, and over
// HTTP/1.1 without reading.
func unreadLists(t *testing.T, _ *world) {
	w := serveLimited(t, hasty())
	w.grow(t, 10)
	c := w.framed(t)
	for n := range uint32(askers) {
		if err := c.request(2*n+1, "GET", tenant+"/configmaps", "editor", true); err != nil {
			t.Fatal(err)
		}
	}
	old := w.dial(t, "http/1.1")
	if _, err := fmt.Fprintf(old, "GET %s/configmaps HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\n\r\n", tenant, tokenOf("editor")); err != nil {
		t.Fatal(err)
	}
	for n := range uint32(askers) {
		c.ended(t, 2*n+1)
	}
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) { // a connection that was closed takes nothing
		if _, err := old.Write([]byte("a")); err != nil {
			break
		}
		if time.Since(begun) > limit {
			t.Fatal("an HTTP/1.1 connection whose answer is not read stays open")
		}
	}
	w.serves(t)
}

// unreadWatches opens watches with a window that is never opened, for events of all sizes.
func unreadWatches(t *testing.T, _ *world) {
	w := serveLimited(t, hasty())
	for n, write := range []func(){
		func() {
			for i := range 400 { // more than fit in the 64 KiB of a window
				w.must(t, request{as: "editor", method: "POST", path: tenant + "/configmaps", body: configMap(fmt.Sprint("small", i), "{}")},
					http.StatusCreated)
			}
		},
		func() { w.grow(t, 2) },
	} {
		c := w.framed(t)
		if err := c.request(1, "GET", tenant+"/configmaps?watch=true", "watcher", true); err != nil {
			t.Fatal(err)
		}
		if code := c.status(t, 1); code != "200" {
			t.Fatalf("watch %d: %s", n, code)
		}
		write()
		c.ended(t, 1)
	}
	w.serves(t)
}

// ended reads until the server has reset the stream.
func (c *framed) ended(t *testing.T, stream uint32) {
	t.Helper()
	for !c.resets[stream] && c.answers[stream] != "429" {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatalf("stream %d does not end: %v", stream, err)
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			c.answers[f.StreamID] = f.PseudoValue("status")
		case *http2.RSTStreamFrame:
			c.resets[f.StreamID] = true
		case *http2.PingFrame:
			if !f.IsAck() {
				_ = c.WritePing(true, f.Data)
			}
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = c.WriteSettingsAck()
			}
		}
	}
}

// askAll sends as many lists at once as there are askers. The answers are whole, or
// say that the client must come again; the process does not grow; another user is
// served meanwhile.
func (w *world) askAll(t *testing.T, path, accept string, header ...string) {
	t.Helper()
	watch := watchMemory(t)
	ctx, cancel := context.WithCancel(t.Context())
	var asked, other sync.WaitGroup
	var slowest time.Duration
	other.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			a, err := w.try(t.Context(), request{as: "reader", method: "GET", path: open})
			if err != nil || a.code != http.StatusOK {
				t.Errorf("another user: %v %d %s", err, a.code, a.body)
			}
			slowest = max(slowest, time.Since(began))
		}
	})
	var whole, again atomic.Int64
	began := time.Now()
	for n := range askers {
		asked.Go(func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.base+path, http.NoBody)
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Accept", accept)
			req.Header.Set("Accept-Encoding", "identity")
			req.Header.Set("Authorization", "Bearer "+tokenOf("editor"))
			for i := 0; i+1 < len(header); i += 2 {
				req.Header.Set(header[i], header[i+1])
			}
			transport := &http.Transport{TLSClientConfig: w.tls(nil, "http/1.1"), TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}
			defer transport.CloseIdleConnections()
			resp, err := transport.RoundTrip(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			size, err := io.Copy(io.Discard, resp.Body)
			switch {
			case err != nil:
				t.Errorf("answer %d: %d: after %d bytes: %v", n, resp.StatusCode, size, err)
			case resp.StatusCode == http.StatusOK:
				whole.Add(1)
			case resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") != "":
				again.Add(1)
			default:
				t.Errorf("answer %d: %d, want 200 or 429", n, resp.StatusCode)
			}
		})
	}
	asked.Wait()
	took := time.Since(began)
	cancel()
	other.Wait()
	grown := watch()
	t.Logf("%v, %d MiB more memory, another user waited %v, %d whole, %d refused", took, grown>>20, slowest, whole.Load(), again.Load())
	if whole.Load() == 0 {
		t.Error("nobody was answered")
	}
	if grown > mostGrowth {
		t.Errorf("the process grew by %d MiB, more than %d", grown>>20, mostGrowth>>20)
	}
}

// watchMemory returns a function that ends the watch and says by how many bytes the
// process grew at most.
func watchMemory(t *testing.T) func() uint64 {
	t.Helper()
	debug.FreeOSMemory()
	read := func() uint64 {
		s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
		metrics.Read(s)
		return s[0].Value.Uint64() - s[1].Value.Uint64()
	}
	before, most := read(), uint64(0)
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			most = max(most, read())
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
		}
	})
	return func() uint64 {
		cancel()
		watching.Wait()
		return max(most, before) - before
	}
}
