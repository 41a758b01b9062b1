package security

import (
	"bytes"
	"crypto/tls"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// TestFrames: HTTP/2 frames that cost the server more than the client are
// counted, and others are served meanwhile.
func TestFrames(t *testing.T) {
	t.Parallel()
	attack(t, serve(t), frameAttempts())
}

func frameAttempts() map[string]attempt {
	return map[string]attempt{
		"rapid reset": {reason: "a stream that is reset counts until its request has ended (CVE-2023-44487)", try: func(t *testing.T, w *world) {
			w.flood(t, func(c *framed, n uint32) error {
				if err := c.request(2*n+1, "POST", tenant+"/configmaps", "editor", false); err != nil {
					return err
				}
				return c.WriteRSTStream(2*n+1, http2.ErrCodeCancel)
			})
		}},
		"reset by a bad frame": {reason: "a stream that the server resets counts as well (CVE-2025-8671)", try: func(t *testing.T, w *world) {
			w.flood(t, func(c *framed, n uint32) error {
				if err := c.request(2*n+1, "POST", tenant+"/configmaps", "editor", false); err != nil {
					return err
				}
				return c.WriteRawFrame(http2.FrameWindowUpdate, 0, 2*n+1, []byte{0, 0, 0, 0}) // an increment of 0 is an error of the stream
			})
		}},
		"headers without end": {reason: "header frames have a limit together (CVE-2023-45288)", try: func(t *testing.T, w *world) {
			c := w.framed(t)
			err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.block("GET", open, "stranger")})
			for n := 0; err == nil && n < 10_000; n++ {
				c.headers.Reset()
				_ = c.encoder.WriteField(hpack.HeaderField{Name: "a", Value: strings.Repeat("a", 4<<10), Sensitive: true})
				err = c.WriteContinuation(1, false, c.headers.Bytes())
			}
			if err == nil {
				t.Error("the server reads 40 MB of headers")
			}
		}},
		"headers that grow": {reason: "what the dictionary makes of a header counts", try: func(t *testing.T, w *world) {
			c := w.framed(t)
			c.block("GET", open, "stranger")
			big := hpack.HeaderField{Name: "a", Value: strings.Repeat("a", 3<<10)}
			for range 2_000 { // the first is added to the dictionary, the others are a byte each
				_ = c.encoder.WriteField(big)
			}
			block := bytes.Clone(c.headers.Bytes())
			if len(block) > 16<<10 {
				t.Fatalf("the block has %d bytes", len(block))
			}
			if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndStream: true, EndHeaders: true, BlockFragment: block}); err != nil {
				t.Fatal(err)
			}
			if code := c.status(t, 1); code != "431" && code != "closed" {
				t.Errorf("6 MB of headers: %s", code)
			}
		}},
		"settings flood": {reason: "answers that nobody reads are not kept without end", try: func(t *testing.T, w *world) {
			w.flood(t, func(c *framed, _ uint32) error { return c.WriteSettings() })
		}},
		"ping flood": {reason: "answers that nobody reads are not kept without end", try: func(t *testing.T, w *world) {
			w.flood(t, func(c *framed, n uint32) error { return c.WritePing(false, [8]byte{byte(n)}) })
		}},
		"empty frames": {reason: "frames without content make no progress", try: func(t *testing.T, w *world) {
			c := w.framed(t)
			if err := c.request(1, "POST", tenant+"/configmaps", "editor", false); err != nil {
				t.Fatal(err)
			}
			for range 5_000 {
				if c.WriteData(1, false, nil) != nil {
					break
				}
			}
			w.serves(t)
		}},
		"more streams than allowed": {reason: "a connection has 100 at once", try: func(t *testing.T, w *world) {
			c := w.framed(t)
			for n := range uint32(300) {
				if c.request(2*n+1, "GET", tenant+"/configmaps?watch=true", "watcher", true) != nil {
					break
				}
			}
			opened := 0
			for n := range uint32(300) {
				if c.status(t, 2*n+1) == "200" {
					opened++
				}
			}
			if opened > 100 {
				t.Errorf("%d watches are open in one connection", opened)
			}
			w.serves(t)
		}},
		"headers of HTTP/1 in HTTP/2": {reason: "they have no meaning there, and cannot be smuggled on", try: func(t *testing.T, w *world) {
			for _, f := range []hpack.HeaderField{
				{Name: "transfer-encoding", Value: "chunked"},
				{Name: "connection", Value: "close"},
				{Name: "a", Value: "b\r\nc: d"},
				{Name: "a\r\nb", Value: "c"},
				{Name: "A", Value: "b"},
				{Name: ":path", Value: crown},
				{Name: ":authority\x00", Value: "a"},
				{Name: ":unknown", Value: "a"},
			} {
				c := w.framed(t)
				c.block("GET", crown, "stranger")
				_ = c.encoder.WriteField(f)
				if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndStream: true, EndHeaders: true, BlockFragment: c.headers.Bytes()}); err != nil {
					t.Fatal(err)
				}
				if code := c.status(t, 1); code < "4" {
					t.Errorf("%q: %s", f, code)
				}
			}
		}},
		"odd paths in HTTP/2": {reason: "a path begins with a slash", try: func(t *testing.T, w *world) {
			for _, p := range []string{"", "*", "api/v1/secrets", "https://a" + crown, "//" + crown, crown + " HTTP/1.1\r\nA: b", "\\api"} {
				c := w.framed(t)
				if err := c.request(1, "GET", p, "stranger", true); err != nil {
					t.Fatal(err)
				}
				if code := c.status(t, 1); code < "4" {
					t.Errorf("%q: %s", p, code)
				}
			}
		}},
	}
}

// serves tells whether others are answered.
func (w *world) serves(t *testing.T) {
	t.Helper()
	w.must(t, request{as: "reader", method: "GET", path: open}, http.StatusOK)
	w.must(t, request{method: "GET", path: crown}, http.StatusOK)
}

// flood sends up to 2,000 times what costs the server something, reads nothing,
// and asks for something else meanwhile. The server may close the connection.
func (w *world) flood(t *testing.T, send func(c *framed, n uint32) error) {
	t.Helper()
	c := w.framed(t)
	for n := range uint32(2_000) {
		if send(c, n) != nil {
			break
		}
		if n%500 == 250 {
			w.serves(t)
		}
	}
	w.serves(t)
}

// framed is a connection of which frames are written by hand.
type framed struct {
	*http2.Framer
	conn    *tls.Conn
	headers bytes.Buffer
	encoder *hpack.Encoder
	answers map[uint32]string
	resets  map[uint32]bool
}

func (w *world) framed(t *testing.T) *framed {
	t.Helper()
	c := &framed{conn: w.dial(t, "h2"), answers: map[uint32]string{}, resets: map[uint32]bool{}}
	c.encoder = hpack.NewEncoder(&c.headers)
	if _, err := c.conn.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	c.Framer = http2.NewFramer(c.conn, c.conn)
	c.AllowIllegalWrites = true
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := c.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return c
}

// block is the encoded header of a request.
func (c *framed) block(method, path, as string) []byte {
	c.headers.Reset()
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: method},
		{Name: ":scheme", Value: "https"},
		{Name: ":authority", Value: "a"},
		{Name: ":path", Value: path},
		{Name: "authorization", Value: "Bearer " + tokenOf(as)},
		{Name: "content-type", Value: "application/json"},
	} {
		_ = c.encoder.WriteField(f) // to a buffer
	}
	return c.headers.Bytes()
}

func (c *framed) request(stream uint32, method, path, as string, end bool) error {
	return c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndStream: end, EndHeaders: true, BlockFragment: c.block(method, path, as)})
}

// status reads until the stream has an answer: its code, or "reset" or "closed".
func (c *framed) status(t *testing.T, stream uint32) string {
	t.Helper()
	for c.answers[stream] == "" {
		f, err := c.ReadFrame()
		if err != nil {
			if isTimeout(err) {
				t.Errorf("stream %d has no answer", stream)
			}
			return "closed"
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			if c.answers[f.StreamID] == "" {
				c.answers[f.StreamID] = f.PseudoValue("status")
			}
		case *http2.RSTStreamFrame:
			if c.answers[f.StreamID] == "" {
				c.answers[f.StreamID] = "reset"
			}
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = c.WriteSettingsAck()
			}
		}
	}
	return c.answers[stream]
}
