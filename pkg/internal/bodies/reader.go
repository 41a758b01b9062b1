package bodies

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
)

// readWhole is how much of a body is read before it is looked at, in bytes: the
// API's own limit. A longer body is passed on, to be refused there.
const readWhole = 3 << 20

// Checker bounds bodies of requests.
type Checker struct {
	Limits Limits
	// TypeOf finds the types of protobuf.
	TypeOf TypeOf

	shapes Shapes
}

// Notice tells whether a body was refused.
type Notice struct{ refused atomic.Bool }

// Refused tells whether [Checker.Guard] had the body fail.
func (n *Notice) Refused() bool { return n.refused.Load() }

type noticeKey struct{}

// WithNotice returns a context of a request in which Guard notes what it does.
func WithNotice(ctx context.Context) (context.Context, *Notice) {
	n := &Notice{}
	return context.WithValue(ctx, noticeKey{}, n), n
}

// noticing notes that a body fails a check.
func noticing(ctx context.Context, check func([]byte) error) func([]byte) error {
	n, ok := ctx.Value(noticeKey{}).(*Notice)
	if !ok {
		return check
	}
	return func(p []byte) error {
		err := check(p)
		if err != nil {
			n.refused.Store(true)
		}
		return err
	}
}

// Guard has the body of a request fail while it is read when it is above a bound. The
// error is a Status, which upstream's handlers answer. A function, if there is one, is
// called with the size of the body when it has come, before anything is made of it.
func (c *Checker) Guard(r *http.Request, arrived func(bytes int64)) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return
	}
	// As upstream reads it: parameters do not say what a body is. The formats of patches
	// have longer names, and aggregated servers have some of their own.
	contentType, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	contentType = strings.ToLower(strings.TrimSpace(contentType))
	is := func(format string) bool { return strings.HasSuffix(contentType, format) }
	switch {
	case is("yaml"):
		r.Body = c.whole(r, arrived, checkYAML)
	case is("cbor"):
		r.Body = c.whole(r, arrived, checkCBOR)
	case is("protobuf"):
		r.Body = c.whole(r, arrived, func(p []byte, l Limits) error { return c.shapes.checkProtobuf(p, l, c.TypeOf) })
	case contentType == "" || is("json"):
		b := &passing{ReadCloser: r.Body, arrived: arrived}
		b.scanner.start(c.Limits, is("json-patch+json"))
		b.scan = noticing(r.Context(), b.scanner.scan)
		r.Body = b
	}
}

// Object checks an object as it is stored.
func (c *Checker) Object(value []byte) error {
	if bytes.HasPrefix(value, []byte(prefix)) {
		return c.shapes.checkProtobuf(value, c.Limits, c.TypeOf)
	}
	if len(value) > 0 && value[0] == '{' {
		return checkJSON(value, c.Limits)
	}
	return nil
}

// Stored checks that a stored value nests no deeper than its decoder can follow.
// Those of JSON and CBOR look for themselves, and only messages that contain
// themselves nest without end.
func (c *Checker) Stored(value []byte) error {
	if !bytes.HasPrefix(value, []byte(prefix)) {
		return nil
	}
	return c.shapes.checkDepth(value, c.TypeOf)
}

// passing is JSON that is looked at as it is read.
type passing struct {
	io.ReadCloser
	scanner scanner
	scan    func([]byte) error
	arrived func(int64)
	bytes   int64
	err     error
}

// Read implements io.Reader.
func (b *passing) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.ReadCloser.Read(p)
	if b.err = b.scan(p[:n]); b.err != nil {
		return 0, b.err
	}
	if b.bytes += int64(n); err == io.EOF && b.arrived != nil {
		b.arrived(b.bytes)
		b.arrived = nil
	}
	return n, err
}

func (c *Checker) whole(r *http.Request, arrived func(int64), check func([]byte, Limits) error) *whole {
	return &whole{
		ReadCloser: r.Body, length: r.ContentLength, arrived: arrived,
		check: noticing(r.Context(), func(p []byte) error { return check(p, c.Limits) }),
	}
}

// whole is a body that is looked at before anything of it is read.
type whole struct {
	io.ReadCloser
	length  int64
	arrived func(int64)
	check   func([]byte) error
	read    bool
	rest    io.Reader
	err     error
}

// Read implements io.Reader.
func (b *whole) Read(p []byte) (int, error) {
	if !b.read {
		b.read = true
		b.fill()
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.rest.Read(p)
}

func (b *whole) fill() {
	var content bytes.Buffer
	if b.length > 0 && b.length <= readWhole {
		content.Grow(int(b.length) + bytes.MinRead)
	}
	var n int64
	if n, b.err = content.ReadFrom(io.LimitReader(b.ReadCloser, readWhole+1)); b.err != nil {
		return
	}
	b.rest = &content
	if n > readWhole {
		b.rest = io.MultiReader(&content, b.ReadCloser)
		return
	}
	if b.arrived != nil {
		b.arrived(n)
	}
	b.err = b.check(content.Bytes())
}
